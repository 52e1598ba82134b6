import io
import os
import sys
import tarfile

import msgspec
import pytest

from edt_sdk import (
    Client,
    Conflict,
    EdtError,
    InvalidRequest,
    JobState,
    NotAllowed,
    NotFound,
    PackageError,
    ServerUnreachable,
    TooLarge,
    Unprocessable,
)  # fmt: skip
from edt_sdk.schemas.job import JobSpec


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "digits"
    made.mkdir()
    (made / "train.py").write_text("# FabricModel\nprint('hi')\n")
    return made


@pytest.fixture
def accepting(peer, make_view):
    peer.on("POST", "jobs", lambda _: (201, msgspec.to_builtins(make_view())))
    return peer


def parts_of(request):
    boundary = request.headers["Content-Type"].partition("boundary=")[2].encode()
    pieces = request.body.split(b"--" + boundary)[1:-1]
    return [(head.decode(), body[:-2]) for head, _, body in (piece.partition(b"\r\n\r\n") for piece in pieces)]


def test_a_submission_is_a_spec_and_an_archive(accepting, client, folder, capsys):
    job = client.submit(folder, max_workers=4, args=["--epochs", 8], env={"A": "b"}, seed=7, priority=10)
    assert job.id == "edt-1"
    (spec_head, spec), (package_head, package) = parts_of(accepting.requests[-1])
    assert 'name="spec"' in spec_head
    assert "application/json" in spec_head
    assert 'name="package"' in package_head
    assert "application/gzip" in package_head
    assert msgspec.json.decode(spec, type=JobSpec) == JobSpec(
        name="digits", main="train.py", max_workers=4, args=("--epochs", "8"), env={"A": "b"}, seed=7, priority=10,
        python=sys.executable, python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
    )  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        assert archive.getnames() == ["edtcallback.py", "elog.py", "emetrics.py", "train.py"]
    assert "train.py" in capsys.readouterr().out


def test_the_interpreter_may_be_chosen(accepting, client, folder):
    client.submit(folder, python="/opt/env/bin/python")
    spec = spec_of(accepting.requests[-1])
    assert (spec.python, spec.python_version) == ("/opt/env/bin/python", None)
    known = [{"python": "/opt/env/bin/python", "version": "3.11", "ready": True, "kernels": []}]
    accepting.on("GET", "interpreters", {"interpreters": known})
    assert client.interpreters() == known


def test_arguments_may_be_one_text(accepting, client, folder):
    job = client.submit(folder, args="--epochs 5 --name 'two words'")
    assert spec_of(accepting.requests[-1]).args == ("--epochs", "5", "--name", "two words")
    accepting.on("POST", "submissions", accepting.routes["POST", "jobs"])
    job.clone(args="--epochs 6")
    assert msgspec.json.decode(accepting.requests[-1].body)["spec"] == {"args": ["--epochs", "6"]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_worker": 4}, "submit() has no argument 'max_worker'. Did you mean 'max_workers'?"),
        ({"gizmo": 1}, "submit() has no argument 'gizmo'. Its arguments are source, main,"),
        ({"max_workers": "4"}, "max_workers must be a whole number, not the text '4'."),
        ({"max_workers": 2.5}, "max_workers must be a whole number, not 2.5."),
        ({"priority": None}, "priority must be a whole number, not None."),
        ({"name": 3}, "name must be a text, not 3."),
        ({"env": {"A": 1}}, "Each value of env must be a text, not 1."),
        ({"args": {"--epochs": 3}}, "args has no names: it is a text or a list. Such as '--epochs 3'."),
        ({"args": "--name 'x"}, "args is a text that a shell could not split: No closing quotation"),
        ({"framework": "pytorch"}, "There is no framework 'pytorch'. Did you mean 'PyTorch'?"),
        ({"main": "tran.py"}, "Did you mean 'train.py'?"),
    ],
)
def test_wrong_names_and_values(accepting, client, folder, options, says):
    accepting.requests.clear()
    for call, name in ((client.submit, "submit"), (client.preview, "preview")):
        with pytest.raises((InvalidRequest, Unprocessable)) as refused:
            call(folder, **options)
        assert says.replace("submit()", f"{name}()") in str(refused.value)
    assert accepting.requests == []


def test_an_unknown_argument_is_a_type_error_too(client, accepting, folder):
    job = client.submit(folder)
    for other, meant in (("pause", "suspend"), ("cancel", "stop"), ("metric", "metrics")):
        with pytest.raises(AttributeError, match=rf"A job has no '{other}'\. Did you mean '{meant}'\?"):
            getattr(job, other)
    with pytest.raises(TypeError, match=r"update\(\) has no argument 'prioriy'\. Did you mean 'priority'\?"):
        job.update(prioriy=3)
    with pytest.raises(TypeError, match=r"download\(\): too many positional arguments\."):
        job.download("a", "model", "more")
    with pytest.raises(InvalidRequest, match=r"Did you mean 'parent'\?"):
        client.create_instance_group("a", parrent="b")
    with pytest.raises(Unprocessable, match=r"priority must be a whole number, not the text '3'"):
        job.update(priority="3")
    with pytest.raises(InvalidRequest, match=r"Did you mean 'RUNNING'\?"):
        client.jobs(state="runing")


def test_a_script_that_cannot_run_is_not_sent(accepting, client, folder):
    accepting.requests.clear()
    (folder / "train.py").write_text("for x in range(3)\n    pass\n")
    for call in (client.submit, client.preview):
        with pytest.raises(PackageError, match=r"train\.py, line 1 is not Python: expected ':': for x in range\(3\)"):
            call(folder)
    (folder / "train.py").write_text("import torch\nmodel.train()\n")
    for call in (client.submit, client.preview):
        with pytest.raises(Unprocessable, match=r'train\.py never calls FabricModel.*framework="PyTorch"'):
            call(folder)
    assert accepting.requests == []
    client.submit(folder, framework="PyTorch")
    assert spec_of(accepting.requests[-1]).framework == "PyTorch"


def test_more_workers_than_slots_is_remarked(accepting, client, folder, capsys):
    client.submit(folder, max_workers=400)
    assert "slots exist" not in capsys.readouterr().out  # an earlier server does not tell how many there are
    client.info = msgspec.structs.replace(client.info, slots=4)
    client.submit(folder, max_workers=4)
    assert "slots exist" not in capsys.readouterr().out
    client.submit(folder, max_workers=400)
    said = "note: max_workers is 400, and at most 4 slots exist: it will use what there is."
    assert said in capsys.readouterr().out


def spec_of(request):
    return msgspec.json.decode(parts_of(request)[0][1], type=JobSpec)


def test_another_jobs_weights_are_named_by_the_job_or_its_id(accepting, client, folder):
    first = client.submit(folder, mode="fast")
    spec = spec_of(accepting.requests[-1])
    assert (spec.mode, spec.warm_start) == ("fast", "")
    for named in (first, first.id):
        client.submit(folder, warm_start=named)
        assert spec_of(accepting.requests[-1]).warm_start == "edt-1"


def test_the_length_is_announced_and_nothing_is_sent_in_chunks(accepting, client, folder):
    client.submit(folder)
    request = accepting.requests[-1]
    assert int(request.headers["Content-Length"]) == len(request.body)


def test_it_can_be_silent(accepting, client, folder, capsys, monkeypatch):
    client.submit(folder, progress=False)
    monkeypatch.setenv("EDT_NONINTERACTIVE", "1")
    client.submit(folder)
    assert capsys.readouterr() == ("", "")


def test_over_the_cap_nothing_is_sent(accepting, client, folder):
    (folder / "data.bin").write_bytes(os.urandom(1_100_000))
    with pytest.raises(TooLarge, match=r"1.0 MB.*data\.bin"):
        client.submit(folder)
    assert "POST jobs" not in accepting.paths()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"main": "other.py"}, PackageError),
        ({"max_workers": 0}, Unprocessable),
        ({"priority": 0}, Unprocessable),
        ({"mode": "quick"}, Unprocessable),
        ({"warm_start": ""}, InvalidRequest),
        ({"warm_start": "../edt-1"}, InvalidRequest),
        ({"warm_start": 7}, InvalidRequest),
        ({"env": {"A B": "c"}}, InvalidRequest),
        ({"env": {"JUPYTERHUB_API_TOKEN": "x"}}, InvalidRequest),
        ({"env": {"HARMLESS": "prefix secret"}}, InvalidRequest),
        ({"args": ["--token=secret"]}, InvalidRequest),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(accepting, client, folder, wrong, error):
    with pytest.raises(error):
        client.submit(folder, **wrong)
    assert "POST jobs" not in accepting.paths()


def test_the_environment_of_the_kernel_does_not_travel(accepting, client, folder, monkeypatch):
    monkeypatch.setenv("JPY_API_TOKEN", "kernel-token")
    client.submit(folder)
    body = accepting.requests[-1].body
    assert b"kernel-token" not in body
    assert b"secret" not in body


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (409, {"message": "over", "code": "conflict", "hint": "h"}, Conflict),
        (422, {"message": "no group", "code": "unprocessable", "hint": ""}, Unprocessable),
        (404, {"message": "none", "code": "not_found", "hint": ""}, NotFound),
        (403, {"message": "not yours", "code": "not_allowed", "hint": ""}, NotAllowed),
        (500, {"message": "broken"}, EdtError),
        (302, {}, NotAllowed),
    ],
)
def test_refusals_become_their_errors(peer, client, status, body, error):
    peer.on("GET", "jobs/edt-1", lambda _: (status, body))
    peer.on("GET", "jobs", {"jobs": []})
    with pytest.raises(error) as refused:
        client.job("edt-1")
    assert type(refused.value) is error
    assert body.get("message", "") in refused.value.message


def test_a_get_is_tried_again_and_a_post_is_not(peer, client):
    answers = [(503, {}), (200, {"jobs": []})]
    peer.on("GET", "jobs", lambda _: answers.pop(0))
    assert client.jobs() == []
    peer.on("POST", "jobs/stop", lambda _: (503, {"message": "busy"}))
    with pytest.raises(ServerUnreachable):
        client.stop_all()
    assert peer.paths().count("POST jobs/stop") == 1


def test_jobs_and_filters(peer, client, make_view):
    peer.on("GET", "jobs", {"jobs": [msgspec.to_builtins(make_view(id="b")), msgspec.to_builtins(make_view(id="a"))]})
    assert [job.id for job in client.jobs(all=True, state="running")] == ["b", "a"]
    assert peer.requests[-1].query == {"all": "1", "state": "RUNNING"}
    client.jobs(limit=20, trials=True)
    assert peer.requests[-1].query == {"limit": "20", "trials": "1"}
    with pytest.raises(InvalidRequest, match="no state"):
        client.jobs(state="sleeping")
    client.jobs(state="stopped")
    assert peer.requests[-1].query == {"state": "KILLED"}
    with pytest.raises(InvalidRequest):
        client.job("")
    with pytest.raises(NotFound):
        client.job("../jobs")
    assert "GET jobs/../jobs" not in peer.paths()


@pytest.fixture
def named(peer, make_view):
    """Jobs whose names say less and less."""
    known = {"alpha-x1": "alpha", "alpha-2-y1": "alpha-2", "twice-b": "twice", "twice-a": "twice", "uniq-c": "ünïq/1"}
    views = {job: msgspec.to_builtins(make_view(id=job, name=name)) for job, name in known.items()}
    for job, view in views.items():
        peer.on("GET", f"jobs/{job}", view)
    ids = list(views)

    def listed(request):
        # Two a page.
        at = ids.index(request.query["before"].partition(",")[2]) + 1 if "before" in request.query else 0
        answer = {"jobs": [views[job] for job in ids[at : at + 2]]}
        return 200, answer | ({"next": "more"} if at + 2 < len(ids) else {})

    peer.on("GET", "jobs", listed)
    return peer


@pytest.mark.parametrize(
    ("given", "job"),
    [
        ("alpha-x1", "alpha-x1"),
        ("alpha", "alpha-x1"),  # a whole name comes before the beginning of another one
        ("alpha-2", "alpha-2-y1"),
        ("alpha-x", "alpha-x1"),
        ("twice-a", "twice-a"),
        ("ünïq/1", "uniq-c"),
        ("ün", "uniq-c"),
    ],
)
def test_a_job_has_an_id_a_name_and_their_beginnings(named, client, given, job):
    assert client.job(given).id == job


@pytest.mark.parametrize(
    ("given", "candidates"),
    [("twice", ("twice-b", "twice-a")), ("al", ("alpha-x1", "alpha-2-y1")), ("t", ("twice-b", "twice-a"))],
)
def test_the_newest_of_several_jobs_does_not_win(named, client, given, candidates):
    shown = ", ".join(rf"{each} \(\w+, from \d\d:\d\d:\d\d\)" for each in candidates)
    with pytest.raises(InvalidRequest, match=f"'{given}' could be 2 jobs: {shown}. Give one of these ids"):
        client.job(given)
    with pytest.raises(NotFound, match="no jobs/never"):
        client.job("never")


def test_a_window_of_the_timeline(peer, client):
    peer.on("GET", "timeline", {"capacity": 4, "rows": [], "names": {}, "total": 7, "thinned": True})
    timeline = client.timeline(since=1.5, points=100)
    assert peer.requests[-1].query == {"start": "1.5", "points": "100"}
    assert (timeline.total, timeline.thinned) == (7, True)


def test_a_list_of_jobs_is_a_table_in_a_notebook_and_lines_elsewhere(peer, client, make_view):
    peer.on("GET", "jobs", {"jobs": [msgspec.to_builtins(make_view(id="b")), msgspec.to_builtins(make_view(id="a"))]})
    jobs = client.jobs()
    assert repr(jobs).splitlines() == [
        "Job b (digits): running, 2 of at most 4 slots.",
        "Job a (digits): running, 2 of at most 4 slots.",
    ]
    html = jobs._repr_html_()
    assert html.index("<code>b</code>") < html.index("<code>a</code>")
    # Looking at the list asks the server nothing.
    assert peer.paths().count("GET jobs") == 1
    assert len(peer.requests) <= 2

    peer.on("GET", "jobs", {"jobs": []})
    assert repr(client.jobs()) == "No jobs."
    assert "client.submit(" in client.jobs()._repr_html_()


def test_a_proxy_of_the_environment_is_not_asked_about_loopback(peer, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Client(peer.url, peer.token) as client:
        assert client.info.user == "ann"


def test_netrc_does_not_replace_the_token(peer, monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with Client(peer.url, peer.token) as client:
        assert client.info.user == "ann"


def test_states_are_equal_to_their_names():
    assert JobState.RUNNING == "RUNNING"
