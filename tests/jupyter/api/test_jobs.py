"""A job's life over REST, from submission to deletion."""

from __future__ import annotations

import io
import zipfile

import pytest
from tornado.web import HTTPError

from edt_jupyter.http.state_events import SCHEMA_ID
from edt_sdk.pictures.parts.look import job_colour
from tests.waiting import until_async

LEAVER = {"train.py": b"print('no training here', flush=True)\n"}


@pytest.fixture
def ended(call):
    """The job once it has ended."""

    async def wait(job):
        async def look():
            view = (await call("GET", f"jobs/{job}")).json
            return view if view["state"] in ("FINISHED", "KILLED", "FAILED", "ERROR") else None

        return await until_async(look, f"the end of {job}")

    return wait


async def test_one_waits_with_a_reason_while_others_have_the_slots(submit, call):
    jobs = [(await submit(name=f"Job {k}!")).json for k in range(3)]
    assert [job["state"] for job in jobs] == ["LAUNCHING", "LAUNCHING", "PENDING"]
    assert jobs[0]["id"].startswith("job-0-")
    assert len({job_colour(job["id"]) for job in jobs}) == 3
    assert jobs[2]["reason"]["code"] == "busy"
    assert "Job 0!" in jobs[2]["reason"]["text"]
    assert jobs[2]["message"] == ""
    cluster = (await call("GET", "cluster")).json
    assert [slot["job"] for slot in cluster["slots"]] == [jobs[0]["id"], jobs[1]["id"]]
    pending = (await call("GET", "jobs", params={"state": "pending"})).json["jobs"]
    assert [job["id"] for job in pending] == [jobs[2]["id"]]


async def test_a_waiting_job_starts_when_another_is_stopped(submit, call, ended):
    first, second, third = [(await submit()).json["id"] for _ in range(3)]
    answer = await call("POST", f"jobs/{first}/stop", body=b"")
    assert answer.status == 202
    assert (await ended(first))["state"] == "KILLED"

    async def third_starts():
        return (await call("GET", f"jobs/{third}")).json["state"] in ("LAUNCHING", "RUNNING")

    await until_async(third_starts, "the third job's start")
    stopped = (await call("POST", "jobs/stop", body=b"")).json["jobs"]
    assert sorted(stopped) == sorted([second, third])
    for job in stopped:
        assert (await ended(job))["state"] == "KILLED"


async def test_a_job_that_waits_is_stopped_at_once(submit, call):
    jobs = [(await submit()).json["id"] for _ in range(3)]
    view = (await call("POST", f"jobs/{jobs[2]}/stop", body=b"")).json
    assert (view["state"], view["started"], view["slots"]) == ("KILLED", None, 0)


async def test_conflicts_name_the_state_and_the_way_out(submit, call, ended):
    job = (await submit()).json["id"]
    answer = await call("DELETE", f"jobs/{job}")
    assert (answer.status, answer.json["code"]) == (409, "conflict")
    assert "top it first" in answer.json["hint"]
    await call("POST", f"jobs/{job}/stop", body=b"")
    await ended(job)
    for method, path, body in (("POST", "/stop", b""), ("PATCH", "", {"priority": 7})):
        answer = await call(method, f"jobs/{job}{path}", body=body)
        assert (answer.status, answer.json["state"]) == (409, "KILLED")


async def test_update_changes_what_it_names_and_refuses_the_rest(submit, call):
    job = (await submit(framework="edtPyTorch")).json["id"]
    view = (await call("PATCH", f"jobs/{job}", body={"priority": 10000})).json
    assert (view["priority"], view["max_workers"]) == (10000, 1)
    view = (await call("PATCH", f"jobs/{job}", body={"max_workers": 3, "instance_group": "default"})).json
    assert (view["priority"], view["max_workers"]) == (10000, 3)
    for body, status, code in (
        ({}, 400, "invalid_request"),
        ({"color": "red"}, 422, "unprocessable"),
        ({"priority": "high"}, 422, "unprocessable"),
        (b"{", 400, "invalid_request"),
        (b"", 400, "invalid_request"),
        ({"priority": 0}, 422, "unprocessable"),
        ({"max_workers": 0}, 422, "unprocessable"),
        ({"instance_group": "none"}, 422, "unprocessable"),
    ):
        answer = await call("PATCH", f"jobs/{job}", body=body)
        assert (answer.status, answer.json["code"]) == (status, code), body
    assert (await call("GET", f"jobs/{job}")).json["priority"] == 10000
    story = [event["text"] for event in (await call("GET", f"jobs/{job}/events")).json["events"]]
    assert any("10000" in text and "5000" in text for text in story)


async def test_logs_results_and_deletion_of_a_job_that_ended(submit, call, ended, tmp_path, leftovers):
    job = (await submit(LEAVER)).json["id"]
    view = await ended(job)
    assert view["state"] == "FAILED"  # it never called train()
    assert view["message"]
    logs = (await call("GET", f"jobs/{job}/logs")).json
    assert "no training here" in [line["text"] for line in logs["lines"]]
    assert logs["done"]
    again = (await call("GET", f"jobs/{job}/logs", params={"after": logs["next"]})).json
    assert (again["lines"], again["next"], again["done"]) == ([], logs["next"], True)
    text = await call("GET", f"jobs/{job}/logs", params={"stream": "stdout"}, headers={"Accept": "text/plain"})
    assert text.headers["Content-Type"].startswith("text/plain")
    assert text.body == b"no training here\n"

    result = await call("GET", f"jobs/{job}/result", params={"part": "all"})
    assert result.headers["Content-Disposition"] == (
        f"attachment;filename=dlpd-model-{job}-result.zip;size={len(result.body)}"
    )
    assert int(result.headers["Content-Length"]) == len(result.body)
    names = zipfile.ZipFile(io.BytesIO(result.body)).namelist()
    assert {"_submitted_code/train.py", "streams/driver.stdout"} <= set(names)
    missing = await call("GET", f"jobs/{job}/result", params={"part": "model"})
    assert (missing.status, missing.json["part"]) == (404, "model")
    wrong = await call("GET", f"jobs/{job}/result", params={"part": "nothing"})
    assert (wrong.status, wrong.json["field"]) == (400, "part")

    assert (await call("DELETE", f"jobs/{job}")).status == 204
    for path in ("", "/logs", "/events", "/result"):
        assert (await call("GET", f"jobs/{job}{path}")).status == 404
    assert [name for name in leftovers() if job in name] == []
    timeline = (await call("GET", "timeline")).json
    assert timeline["rows"][-1]["slots"] == {}
    assert timeline["capacity"] == 2


async def test_the_timeline_of_a_job_covers_its_life_only(submit, call, ended):
    first = (await submit(LEAVER, name="first", framework="PyTorch")).json["id"]
    await ended(first)
    second = (await submit(LEAVER, name="second", framework="PyTorch")).json["id"]
    await ended(second)
    whole = (await call("GET", "timeline")).json
    own = (await call("GET", f"jobs/{second}/timeline")).json
    assert set(whole["names"].values()) == {"first", "second"}
    assert own["names"] == {second: "second"}
    assert [row["slots"].get(second, 0) for row in own["rows"]] == [1, 0]


async def test_a_window_of_the_timeline_and_a_picture_of_few_points(submit, call, ended):
    await ended((await submit(LEAVER, framework="PyTorch")).json["id"])
    whole = (await call("GET", "timeline")).json
    assert (whole["total"], whole["thinned"]) == (len(whole["rows"]), False)
    *_, arrived, left = whole["rows"]
    window = (
        await call("GET", "timeline", params={"start": str(arrived["time"]), "end": str(left["time"] - 1e-4)})
    ).json
    assert window["rows"] == [arrived]
    few = (await call("GET", "timeline", params={"points": "2"})).json
    assert few["rows"] == [whole["rows"][0], left]
    assert (few["total"], few["thinned"]) == (len(whole["rows"]), True)


async def test_a_long_list_comes_in_pages(submit, call):
    ids = [(await submit(name=f"job {number}")).json["id"] for number in range(4)]
    seen, params = [], {"limit": "3"}
    while params is not None:
        page = (await call("GET", "jobs", params=params)).json
        seen += [view["id"] for view in page["jobs"]]
        params = {"limit": "3", "before": page["next"]} if "next" in page else None
    assert seen == ids[::-1]
    assert "next" not in (await call("GET", "jobs", params={"limit": "4"})).json, "there is no more"


WRONG = (
    ("jobs", {"state": "HAPPY"}, "state"),
    ("jobs", {"limit": "0"}, "limit"),
    ("jobs", {"trials": "2"}, "trials"),
    ("jobs", {"all": "yes"}, "all"),
    ("jobs", {"before": "yesterday"}, "before"),
    ("timeline", {"points": "1"}, "points"),
    ("timeline", {"start": "noon"}, "start"),
    ("jobs/JOB/timeline", {"end": "inf"}, "end"),
    ("jobs/JOB/logs", {"stream": "everything"}, "stream"),
    ("jobs/JOB/logs", {"worker": "first"}, "worker"),
    ("jobs/JOB/logs", {"stream": "elog", "worker": "1"}, "worker"),
    ("jobs/JOB/logs", {"limit": "0"}, "limit"),
    ("jobs/JOB/logs", {"after": "%%%"}, "after"),
    ("jobs/JOB/logs", {"after": "eyIuLi8uLi9ldGMvcGFzc3dkIjoxfQ"}, "after"),
    ("jobs/JOB/metrics", {"after": "x"}, "after"),
    ("jobs/JOB/metrics", {"points": "1"}, "points"),
    ("jobs/JOB/events", {"after": "-1"}, "after"),
    ("jobs/JOB/events", {"after": "abc", "follow": "1"}, "after"),
    ("jobs/JOB/logs", {"after": "abc", "follow": "1"}, "after"),
)


async def test_wrong_parameters_are_400_and_name_the_field(submit, call):
    job = (await submit()).json["id"]
    for path, params, field in WRONG:
        answer = await call("GET", path.replace("JOB", job), params=params)
        assert (answer.status, answer.json["field"]) == (400, field), (path, params)


async def test_a_fault_of_ours_tells_nothing_of_the_inside(edt, call, monkeypatch):
    async def broken(_user):
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(edt.service, "cluster", broken)
    answer = await call("GET", "cluster")
    assert (answer.status, answer.json["code"]) == (500, "internal")
    assert "secret" not in answer.body.decode()


async def test_what_tornado_refuses_is_json_too(edt, call, monkeypatch):
    async def refuses(_user):
        raise HTTPError(418, "no coffee: %s", "tea")

    monkeypatch.setattr(edt.service, "cluster", refuses)
    answer = await call("GET", "cluster")
    assert (answer.status, answer.json) == (418, {"message": "no coffee: tea", "code": "refused", "hint": ""})


async def test_states_are_told_on_jupyters_event_bus(edt, jp_serverapp, submit):
    heard = []

    async def listener(logger, schema_id, data):
        heard.append(data)

    jp_serverapp.event_logger.add_listener(schema_id=SCHEMA_ID, listener=listener)
    job = (await submit(LEAVER, name="heard")).json["id"]

    def states():
        return [data["state"] for data in heard if data["job"] == job]

    await until_async(lambda: "FAILED" in states(), "what the bus tells last, after the job's end is known")
    assert states() == ["LAUNCHING", "FAILED"]
    assert {data["name"] for data in heard} == {"heard"}


async def test_jobs_count_as_activity(edt, jp_serverapp, submit, call, ended):
    assert not edt.current_activity()
    job = (await submit()).json["id"]
    assert edt.current_activity()
    assert jp_serverapp.web_app.settings["edt_last_activity"] <= jp_serverapp.web_app.last_activity()
    await call("POST", f"jobs/{job}/stop", body=b"")
    await ended(job)
    assert not edt.current_activity()
