import asyncio
import io
import json
import zipfile

import msgspec
import pytest

from edt_sdk import InvalidRequest, JobFailed, JobState, NotFound, ServerUnreachable, Unprocessable, WaitTimeout
from edt_sdk.client.job import MIME, Job
from edt_sdk.schemas.job import JobProgress, Reason


@pytest.fixture
def job(peer, client, make_view):
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view()))
    return client.job("edt-1")


def ends(peer, stream, events, view, *, drops=0):
    """The events stream of a job that ends as `view`, dropped a few times before."""
    left = [drops]

    def answer(_):
        if left[0]:
            left[0] -= 1
            return stream(events((1, "event", {})), end=False)
        return stream(events((2, "job", view), (2, "end", {})))

    peer.on("GET", "jobs/edt-1/events", answer)


def test_wait_outlives_dropped_connections(peer, job, make_view, stream, events):
    ends(peer, stream, events, make_view(state=JobState.FINISHED), drops=3)
    assert job.wait() is job
    assert job.view.state is JobState.FINISHED
    assert [r.query.get("after") for r in peer.requests if r.path.endswith("events")] == [None, "1", "1", "1"]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.ERROR, JobState.KILLED])
def test_wait_raises_when_it_did_not_finish(peer, job, make_view, stream, events, state):
    ends(peer, stream, events, make_view(state=state, message="A worker died.\nlast words"))
    with pytest.raises(JobFailed, match=rf"ended as {state.shown}: A worker died\.\nlast words") as failed:
        job.wait()
    assert failed.value.ids == {"job": "edt-1", "state": state.value}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("a.py raised KeyError: 3.\nLast lines of x:\n  File a.py\nKeyError: 3", "3.\nLast lines of x:\n  File a.py\n"),
        ("It never trains.\nLast lines of x:\nedt: It never trains.", "It never trains.\nEvery line"),
        (
            "It is a lock.\nLast lines of x:\n  at b\nUnprocessable: It is a lock.",
            "lock.\nLast lines of x:\n  at b\nEvery",
        ),
        ("It ended with exit code 3.\nLast lines of x:\nEpoch: 3", "x:\nEpoch: 3\nEvery"),
    ],
)
def test_an_error_is_there_once(peer, job, make_view, stream, events, message, shown):
    ends(peer, stream, events, make_view(state=JobState.FAILED, message=message))
    with pytest.raises(JobFailed) as failed:
        job.wait()
    assert shown in str(failed.value)


def test_a_wait_times_out_and_the_job_does_not(peer, job, stream):
    peer.on("GET", "jobs/edt-1/events", lambda _: stream(b": alive\n\n", end=False))
    with pytest.raises(WaitTimeout, match=r"still RUNNING after 0\.3 s"):
        job.wait(0.3)
    assert "POST jobs/edt-1/stop" not in peer.paths()


SUSPENDED = Reason(
    code="suspended", text="It is suspended. To go on: job.resume()", held=0, entitled=0, asked=0, numbers={}
)


def test_a_wait_goes_on_while_the_job_is_suspended(peer, job, make_view, stream, events, monkeypatch):
    seen = []
    monkeypatch.setattr("edt_sdk.waiting.waiting.ProgressLine.show", lambda _, view: seen.append(view and view.state))
    asleep = make_view(state=JobState.SUSPENDED, slots=0, reason=SUSPENDED)
    answers = [
        stream(events((1, "job", asleep)), end=False),
        stream(events((2, "job", make_view()), (3, "job", make_view(state=JobState.FINISHED)), (3, "end", {}))),
    ]
    peer.on("GET", "jobs/edt-1/events", lambda _: answers.pop(0))
    assert job.wait() is job
    assert [state for state in seen if state is not None][-3:] == ["SUSPENDED", "RUNNING", "FINISHED"]


def test_a_wait_for_a_suspended_job_times_out_with_the_way_on(peer, job, make_view, stream):
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view(state=JobState.SUSPENDED, slots=0, reason=SUSPENDED)))
    peer.on("GET", "jobs/edt-1/events", lambda _: stream(b": alive\n\n", end=False))
    with pytest.raises(WaitTimeout, match=r"still SUSPENDED after 0\.2 s") as late:
        job.wait(0.2)
    assert "edt resume edt-1" in late.value.hint


def test_a_wait_for_a_job_that_holds_times_out_with_the_reason(peer, job, make_view, stream):
    reason = msgspec.structs.replace(SUSPENDED, text="Its search decides.", numbers={"epoch": 3, "epochs": 27})
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view(state=JobState.SUSPENDED, slots=0, reason=reason)))
    peer.on("GET", "jobs/edt-1/events", lambda _: stream(b": alive\n\n", end=False))
    with pytest.raises(WaitTimeout) as late:
        job.wait(0.2)
    assert late.value.hint == "Its search decides."


def test_a_stopped_job_that_was_resumed_elsewhere_is_seen(peer, client, make_view):
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view(state=JobState.KILLED, slots=0)))
    job = client.job("edt-1")
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view()))
    assert repr(job).startswith("Job edt-1 (digits): running")


def test_ctrl_c_stops_waiting_only(peer, job, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("edt_sdk.waiting.waiting.watch", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"Stopped waiting\. Job edt-1 goes on") as stopped:
        job.wait()
    assert stopped.value._render_traceback_() == [str(stopped.value)], "in a cell one paragraph"
    assert "POST jobs/edt-1/stop" not in peer.paths()


def test_awaiting_inside_a_running_loop(peer, job, make_view, stream, events):
    ends(peer, stream, events, make_view(state=JobState.FINISHED))

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(tick())
        assert await job is job
        other.cancel()
        return ticks

    assert asyncio.run(main()) > 1


def test_awaiting_a_job_that_fails(peer, job, make_view, stream, events):
    ends(peer, stream, events, make_view(state=JobState.FAILED, message="boom"))

    async def main():
        await job

    with pytest.raises(JobFailed, match="boom"):
        asyncio.run(main())


def test_verbs(peer, job, make_view):
    peer.on("PATCH", "jobs/edt-1", msgspec.to_builtins(make_view(priority=10000)))
    assert job.update(priority=10000).view.priority == 10000
    assert peer.requests[-1].body == b'{"priority":10000}'
    assert job.update(tags="digits, lr 0.1", notes="") is job
    assert json.loads(peer.requests[-1].body) == {"notes": "", "tags": ["digits", "lr 0.1"]}
    assert (job.notes, job.tags, job.project, job.experiment) == ("", (), "", "")
    job.update(project="mnist", experiment="")
    assert json.loads(peer.requests[-1].body) == {"project": "mnist", "experiment": ""}
    with pytest.raises(Unprocessable, match="twice"):
        job.update(tags=["a", "a"])
    for verb, state in (("stop", "KILLED"), ("suspend", "SUSPENDED"), ("resume", "RUNNING")):
        peer.on("POST", f"jobs/edt-1/{verb}", msgspec.to_builtins(make_view(state=JobState(state))))
        assert getattr(job, verb)().view.state == state
    assert peer.requests[-1].body == b""
    assert job.resume("epoch-3") is job
    assert peer.requests[-1].body == b'{"checkpoint":"epoch-3"}'
    with pytest.raises(InvalidRequest, match="empty"):
        job.resume(checkpoint="")
    peer.on("DELETE", "jobs/edt-1", lambda _: (204, None))
    assert job.delete() is None
    with pytest.raises(InvalidRequest, match="Nothing to change"):
        job.update()


def line(text, **more):
    return {"time": 1.0, "stream": "stdout", "worker": None, "err": False, "text": text, **more}


def test_logs_are_read_page_by_page(peer, job):
    pages = {
        None: {"lines": [line("a"), line("b", stream="worker", worker=3)], "next": "c1", "done": False},
        "c1": {"lines": [line("c")], "next": "c2", "done": True},
        "c2": {"lines": [], "next": "c2", "done": True},
    }
    peer.on("GET", "jobs/edt-1/logs", lambda r: (200, pages[r.query.get("after")]))
    text = job.logs("worker", worker=3)
    assert text == "a\nworker 3 | b\nc\n"
    assert repr(text) == "a\nworker 3 | b\nc"
    assert [entry.text for entry in text.lines] == ["a", "b", "c"]
    assert peer.requests[-1].query["stream"] == "worker"
    assert peer.requests[-1].query["worker"] == "3"
    with pytest.raises(InvalidRequest, match="stream is one of"):
        job.logs("everything")


def test_of_a_log_the_last_lines_or_those_since_a_time(peer, job):
    peer.on("GET", "jobs/edt-1/logs", lambda _: (200, {"lines": [line("a")], "next": "c1", "done": False}))
    assert job.logs(tail=5, since=100.0) == "a\n"
    sent = [request.query for request in peer.requests if request.path == "jobs/edt-1/logs"]
    assert sent == [{"stream": "all", "tail": "5", "since": "100.0", "limit": "5000"}]
    with pytest.raises(InvalidRequest, match="tail is a number of lines above 0, not 0"):
        job.logs(tail=0)
    with pytest.raises(InvalidRequest, match="'soon' is no time"):
        job.logs(since="soon")


def test_lines_are_fetched_as_they_are_taken(peer, job):
    peer.on("GET", "jobs/edt-1/logs", lambda r: (200, {"lines": [line("a")] * 3, "next": "c1", "done": False}))
    lines = job.log_lines()
    assert [next(lines).text for _ in range(3)] == ["a"] * 3
    assert peer.paths().count("GET jobs/edt-1/logs") == 1


def test_logs_can_be_followed(peer, job, stream, events):
    peer.on(
        "GET",
        "jobs/edt-1/logs",
        lambda _: stream(events(("x", "line", line("a")), ("y", "line", line("b")), ("y", "end", {}))),
    )
    assert [str(entry) for entry in job.logs(follow=True)] == ["a", "b"]


def test_metrics(peer, job):
    train = [{"update": 0, "epoch": 0, "samples": 64, "loss": 2.3, "accuracy": 0.1, "world": 1, "time": 1.0}]
    test = [{"epoch": 0, "update": 0, "loss": 2.0, "accuracy": 0.5, "time": 2.0}]
    peer.on("GET", "jobs/edt-1/metrics", {"train": train, "test": test, "next": 1, "done": True})
    metrics = job.metrics()
    assert (metrics.loss, metrics.test_loss, metrics.test_accuracy) == (2.3, 2.0, 0.5)
    assert "last update 1: loss 2.3, accuracy 10.0 %" in repr(metrics)
    peer.on("GET", "jobs/edt-1/metrics", {"train": [], "test": [], "next": 0, "done": False})
    assert job.metrics().test_accuracy is None
    assert repr(job.metrics()) == "Metrics: none yet."


def test_the_story_is_told_from_its_events(peer, job):
    event = {"seq": 4, "time": 0.0, "job": "edt-1", "kind": "state", "data": {}, "cause": None, "text": "Submitted."}
    pages = {None: {"events": [event], "next": 4, "done": False}, "4": {"events": [], "next": 4, "done": False}}
    peer.on("GET", "jobs/edt-1/events", lambda r: (200, pages[r.query.get("after")]))
    assert repr(job.story()) == "00:00:00  Submitted."


def zipped(**files):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


def test_a_download_is_whole_or_not_there(peer, job, tmp_path):
    body = zipped(**{"log/a.txt": "hello"})
    peer.on("GET", "jobs/edt-1/result", lambda _: (200, body))
    path = job.download(tmp_path / "new" / "folder", "log")
    assert path == tmp_path / "new" / "folder" / "edt-1-log.zip"
    assert peer.requests[-1].query == {"part": "log"}
    assert (job.download(tmp_path, extract=True) / "log" / "a.txt").read_text() == "hello"
    broken = tmp_path / "broken"
    peer.on("GET", "jobs/edt-1/result", lambda _: (200, body[:-30]))
    with pytest.raises(ServerUnreachable, match="damaged"):
        job.download(broken)
    peer.on("GET", "jobs/edt-1/result", lambda _: (404, {"message": "none", "code": "not_found"}))
    with pytest.raises(NotFound):
        job.download(broken)
    assert list(broken.iterdir()) == []
    with pytest.raises(InvalidRequest, match="part is one of"):
        job.download(tmp_path, "weights")


def test_weights_come_back_into_a_model(peer, job):
    import torch

    trained, fresh = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    saved = io.BytesIO()
    torch.save(trained.state_dict(), saved)
    body = zipped(**{"model/train/model_epoch_final.pth": saved.getvalue()})
    peer.on("GET", "jobs/edt-1/result", lambda _: (200, body))
    weight = fresh.weight
    assert job.load_into(fresh) is fresh
    assert fresh.weight is weight
    assert torch.equal(fresh.weight, trained.weight)
    peer.on("GET", "jobs/edt-1/result", lambda _: (200, zipped(**{"model/x": ""})))
    with pytest.raises(NotFound, match="no final model"):
        job.load_into(fresh)


def test_what_a_notebook_shows(peer, job, make_view):
    progress = JobProgress(update=12, total_updates=40, epoch=1, epochs=4, loss=0.5)
    peer.on("GET", "jobs/edt-1", msgspec.to_builtins(make_view(progress=progress)))
    points = [{"update": n, "loss": 1.0 / (n + 1)} for n in range(5)]
    peer.on("GET", "jobs/edt-1/metrics", {"train": points, "test": [], "next": 5, "done": False})
    bundle = job._repr_mimebundle_()
    assert list(bundle) == [MIME, "text/html", "text/plain"]
    assert list(bundle[MIME]) == ["version", "id", "taken", "view", "origin"]
    assert (bundle[MIME]["version"], bundle[MIME]["id"], bundle[MIME]["origin"]) == (1, "edt-1", peer.url)
    assert bundle[MIME]["view"]["progress"]["update"] == 12
    assert bundle["text/html"].count("<img ") == 2
    assert msgspec.json.decode(msgspec.json.encode(bundle)) == bundle


def test_the_repr_works_without_the_server(client, make_view):
    from edt_sdk.http.connection import Connection

    lost = Job(Connection("http://127.0.0.1:1/", "", retries=0), make_view(), taken=50551.0)
    text = repr(lost)
    assert text.startswith("Job edt-1 (digits): running, 2 of at most 4 slots.")
    assert "Last seen 1970-01-01 14:02:31 UTC. The server at http://127.0.0.1:1/ does not answer." in text
    bundle = lost._repr_mimebundle_()
    assert "Last seen 1970-01-01 14:02:31 UTC." in bundle["text/html"]


def test_a_story_is_in_the_order_of_time(peer, job):
    """A server that takes a report of the time before it dates its own events later, with lower numbers."""
    told = [(1, 30.0, "slot 0 given back"), (2, 20.0, "finished"), (3, 30.0, "ended")]
    rest = {"kind": "state", "job": "edt-1", "data": {}, "cause": None}
    page = [{"seq": seq, "time": time, "text": text, **rest} for seq, time, text in told]
    pages = [page, []]
    peer.on("GET", "jobs/edt-1/events", lambda _: (200, {"events": pages.pop(0), "next": 3, "done": True}))
    assert [event.text for event in job.story()] == ["finished", "slot 0 given back", "ended"]
