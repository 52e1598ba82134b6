"""A search's life over REST. Its trials are plain jobs that write their metrics themselves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from unittest.mock import AsyncMock
from xml.etree import ElementTree

import pytest

from edt_jupyter.http.state_events import SCHEMA_ID
from edt_server.store import StoreUnavailable
from tests.jupyter.conftest import multipart
from tests.jupyter.users import AsAnn
from tests.packages import SLEEPER, packed
from tests.waiting import until_async

# No torch: the value of a trial is that of its parameter.
SCRIPT = b"""
import json, os, sys
x = float(sys.argv[1])
with open("config.json") as file:
    assert json.load(file) == {"x": x} and os.environ["EDT_PARAMS"] == json.dumps({"x": x})
with open(os.path.join(os.environ["RESULT_DIR"], "val_dict_list.json"), "w") as file:
    json.dump([{"step": 1, "loss": x + 1}, {"step": 2, "loss": x, "accuracy": 1 - x}], file)
"""
SPACE = {"x": {"kind": "uniform", "low": 0, "high": 1}}
POINTS = [{"x": 0.5}, {"x": 0.25}, {"x": 0.75}]


@pytest.fixture
def search(call):
    """POST a search, by itself of a list of three values; keyword arguments change the specification."""

    async def send(script=SCRIPT, *, job=None, headers=None, archive=None, preview=False, **changes):
        plain = {"name": "s", "main": "train.py", "max_workers": 1, "framework": "PyTorch", "args": ["{x}"]}
        spec = {"metric": "loss", "algorithm": "list", "space": SPACE, "points": POINTS, **changes}
        spec["job"] = {**plain, **(job or {})}
        if preview:
            return await call("POST", "searches/preview", body=json.dumps(spec).encode())
        package = packed({"train.py": script}) if archive is None else archive
        body, kind = multipart(("spec", json.dumps(spec).encode()), ("package", package))
        return await call("POST", "searches", body=body, headers={"Content-Type": kind, **(headers or {})})

    return send


@pytest.fixture
def becomes(call):
    async def wait(search, state):
        async def look():
            view = (await call("GET", f"searches/{search}")).json
            assert view["state"] == state or view["state"] not in ("FINISHED", "FAILED"), (
                view["message"],
                (await call("GET", f"searches/{search}/trials")).json["trials"][0]["message"],
            )
            return view if view["state"] == state else None

        return await until_async(look, f"{search} to be {state}")

    return wait


async def test_from_its_start_to_its_deletion(search, call, becomes):
    made = await search()
    assert made.status == 201
    name = made.json["id"]
    assert made.headers["Location"].endswith(f"/searches/{name}")
    assert (made.json["spec"]["trials"], made.json["spec"]["order"]) == (3, "rungs")
    view = await becomes(name, "FINISHED")
    assert (view["best"]["number"], view["best"]["value"], view["best"]["epochs"]) == (1, 0.25, 2)
    assert view["counts"] == {"FINISHED": 3}
    (listed,) = (await call("GET", "searches", params={"state": "finished"})).json["searches"]
    assert listed == view
    assert (await call("GET", "searches", params={"state": "running"})).json == {"searches": []}
    assert (await call("GET", "searches", params={"name": "s"})).json["searches"] == [view]
    assert (await call("GET", "searches", params={"name": "t"})).json["searches"] == []
    assert (await call("GET", "searches", params={"since": view["ended"] - 1})).json["searches"] == [view]
    assert (await call("GET", "searches", params={"since": view["ended"]})).json["searches"] == []
    trials = (await call("GET", f"searches/{name}/trials")).json["trials"]
    assert [(each["number"], each["params"], each["value"]) for each in trials] == [
        (number, point, point["x"]) for number, point in enumerate(POINTS)
    ]
    page = {"after": 0, "limit": 1, "state": "finished"}
    assert (await call("GET", f"searches/{name}/trials", params=page)).json["trials"] == trials[1:2]
    reports = (await call("GET", f"searches/{name}/reports")).json["reports"]
    assert sorted((each["trial"], each["budget"], each["metrics"]["loss"]) for each in reports) == [
        (0, 1, 1.5), (0, 2, 0.5), (1, 1, 1.25), (1, 2, 0.25), (2, 1, 1.75), (2, 2, 0.75),
    ]  # fmt: skip
    later = {"since": reports[3]["seq"], "limit": 1}
    assert (await call("GET", f"searches/{name}/reports", params=later)).json["reports"] == reports[4:5]
    log = (await call("GET", f"searches/{name}/decisions")).json["decisions"]
    assert log[0]["text"] == "the search starts: 3 trials by list"
    ranked = (await call("GET", f"searches/{name}/trials", params={"sort": "value"})).json["trials"]
    assert [each["number"] for each in ranked] == [1, 0, 2]

    async def jobs(**params):
        page = (await call("GET", "jobs", params=params)).json
        return sorted((each["id"], each["search"]) for each in page["jobs"]), "next" in page

    its_jobs = sorted((each["job"], name) for each in trials)
    assert await jobs() == await jobs(limit="1", all="1", state="finished") == ([], False)
    assert await jobs(search=name) == await jobs(trials="1") == (its_jobs, False)
    assert (await jobs(search=name, limit="2"))[1]
    unknown = await call("GET", "jobs", params={"search": "s-none"})
    assert (unknown.status, unknown.json["message"]) == (404, "There is no search 's-none'.")
    second = {"sort": "value", "skip": 1, "limit": 1}
    assert (await call("GET", f"searches/{name}/trials", params=second)).json["trials"] == ranked[1:2]
    some = {"sort": "value", "numbers": "2,0,7"}
    assert (await call("GET", f"searches/{name}/trials", params=some)).json["trials"] == ranked[1:]
    for wrong in ({"sort": "size"}, {"sort": "value", "numbers": "2,x"}):
        (field,) = set(wrong) - {"sort"} or {"sort"}
        assert (await call("GET", f"searches/{name}/trials", params=wrong)).json["field"] == field
    later = {"after": log[0]["index"], "limit": 2}
    assert (await call("GET", f"searches/{name}/decisions", params=later)).json["decisions"] == log[1:3]
    assert (await call("DELETE", f"searches/{name}")).status == 204
    assert (await call("GET", f"searches/{name}")).status == 404
    assert (await call("GET", f"jobs/{trials[1]['job']}")).json["state"] == "FINISHED"
    assert (await jobs(), await jobs(trials="1")) == (([], False), (its_jobs, False)), "they stay trials"


async def test_its_pictures(search, call, becomes):
    name = (await search()).json["id"]
    await becomes(name, "FINISHED")

    async def says(picture, status=200, **params):
        answer = await call("GET", f"searches/{name}/pictures/{picture}", params=params)
        assert answer.status == status, answer.body
        return answer.json["message"] if status != 200 else ElementTree.fromstring(answer.body).get("aria-label")

    best = "s: loss of 3 trials; the best so far is trial 1: 0.25 after 2 epochs, x=0.25."
    assert await says("history", theme="dark", width=400) == await says("history", x="time") == best
    assert await says("rungs") == "s: at their end 3 of 3 compared."
    assert "number or time" in (await says("history", 400, x="size")).replace(", ", " or ")
    drawn = ElementTree.fromstring((await call("GET", f"searches/{name}/pictures/parallel")).body)
    # The best one last.
    assert [each.get("data-trial") for each in drawn.iter() if each.get("data-trial")] == ["2", "0", "1"]
    assert await says("parallel") == "s: loss of 3 trials over x; the best is trial 1: 0.25 after 2 epochs, x=0.25."
    held = await says("slots")
    assert held.startswith("Slots held over ")
    assert all(f"s-{number} " in held for number in range(3))
    assert await says("importance", 404) == "There is no picture 'importance'."
    assert (await call("GET", "searches/none-abcdef/pictures/rungs")).status == 404


async def test_a_trial_that_is_cloned_has_its_values_again(search, call, becomes):
    await becomes((await search()).json["id"], "FINISHED")
    (listed,) = (await call("GET", "searches")).json["searches"]
    job = listed["best"]["job"]
    for _ in range(2):  # the second one is the clone of a clone
        body = json.dumps({"source": {"job": job}, "spec": {"name": "alone"}}).encode()
        answer = await call("POST", "submissions", body=body)
        assert (answer.status, answer.json["search"]) == (201, "")
        job = answer.json["id"]

        async def ended(job=job):
            view = (await call("GET", f"jobs/{job}")).json
            return view if view["state"] in ("FINISHED", "FAILED", "ERROR") else None

        view = await until_async(ended, "the clone's end")
        assert view["state"] == "FINISHED", view["message"]


@pytest.mark.parametrize("ends", [False, True])
async def test_one_that_its_server_could_not_start_begins_later_or_with_the_next(
    edt, search, call, becomes, monkeypatch, ends
):
    with monkeypatch.context() as patched:
        patched.setattr("edt_server.service.search_run.SearchRun.take", AsyncMock(side_effect=StoreUnavailable("gone")))
        assert (await search()).status == 503
        (made,) = (await call("GET", "searches")).json["searches"]
        assert made["state"] == "CREATED"
        if ends:
            await edt.service.searches._runs.pop(made["id"]).stop()
    if ends:
        await edt.service.searches.adopt()
    assert (await becomes(made["id"], "FINISHED"))["best"]["number"] == 1


async def test_a_search_that_has_ended_leaves_nothing_that_works_in_memory(edt, search, call, becomes):
    def working():
        return [each.get_name() for each in asyncio.all_tasks() if each.get_name().startswith("edt search")]

    name = (await search()).json["id"]
    view = await becomes(name, "FINISHED")
    await until_async(lambda: not edt.service.searches._runs, "the end of its last job")
    for _ in range(2):
        assert (await call("GET", "searches")).json["searches"] == [view]
        assert (await call("GET", f"searches/{name}")).json == view
        assert (edt.service.searches._runs, working()) == ({}, [])
    # What is told to it is refused, and leaves nothing either.
    assert (await call("POST", f"searches/{name}/resume", body=b"")).status == 409
    await until_async(lambda: not working(), "the end of its work")
    assert edt.service.searches._runs == {}


async def test_a_trial_whose_job_was_deleted_while_its_search_was_stopped_begins_again(search, call, becomes):
    name = (await search(SLEEPER, algorithm="random", trials=1, points=[])).json["id"]

    async def job():
        (trial,) = (await call("GET", f"searches/{name}/trials")).json["trials"] or [{"job": ""}]
        return trial["job"]

    first = await until_async(job, "the trial's job")
    assert (await call("POST", f"searches/{name}/stop", body=b"")).status == 202

    async def deleted():
        return (await call("DELETE", f"jobs/{first}")).status == 204

    await until_async(deleted, "the end of the job")
    assert (await call("POST", f"searches/{name}/resume", body=b"")).json["state"] == "RUNNING"

    async def another():
        return await job() != first

    await until_async(another, "another job")
    view = (await call("GET", f"searches/{name}")).json
    assert (view["state"], view["counts"]) == ("RUNNING", {"RUNNING": 1})
    await call("POST", f"searches/{name}/stop", body=b"")


async def test_to_stop_all_jobs_stops_the_searches_that_would_start_more(search, call, becomes):
    name = (await search(SLEEPER, algorithm="random", trials=4, points=[], parallel=1)).json["id"]
    await becomes(name, "RUNNING")
    assert (await call("POST", "jobs/stop", body=b"")).status == 202
    await becomes(name, "STOPPED")


async def test_paused_stopped_and_changed(edt, search, call, becomes):
    name = (await search(SLEEPER, algorithm="random", trials=4, points=[], parallel=1)).json["id"]

    async def trains():
        trials = (await call("GET", f"searches/{name}/trials")).json["trials"]
        return [each for each in trials if each["state"] == "RUNNING"]

    (running,) = await until_async(trains, "a trial that runs")
    paused = await call("POST", f"searches/{name}/pause", body=b"")
    assert (paused.status, paused.json["state"], paused.json["outside"]) == (202, "PAUSED", 1)
    again = await call("POST", f"searches/{name}/pause", body=b"")
    assert (again.status, again.json["code"]) == (409, "conflict")
    changes = {"parallel": 2, "trials": 6, "priority": 7000, "tags": ["night"]}
    changed = await call("PATCH", f"searches/{name}", body=changes)
    assert changed.status == 200
    spec = changed.json["spec"]
    assert (spec["parallel"], spec["trials"], spec["job"]["priority"]) == (2, 6, 7000)
    job = (await call("GET", f"jobs/{running['job']}")).json
    assert (job["priority"], job["tags"]) == (7000, ["night"])
    fewer = await call("PATCH", f"searches/{name}", body={"trials": 2, "parallel": 9})
    assert fewer.status == 409
    assert (await call("GET", f"searches/{name}")).json["spec"]["parallel"] == 2
    assert (await call("DELETE", f"searches/{name}")).status == 409
    assert (await call("POST", f"searches/{name}/resume", body=b"")).json["state"] == "RUNNING"
    late = await call("POST", f"searches/{name}/trials", body={"points": [{"x": 0.125}]})
    assert late.status == 409

    async def known():
        return (await edt.service.mine(job["owner"], job["id"])).supervisor

    supervisor = (await until_async(known, "the job's supervisor")).pid
    os.kill(supervisor, signal.SIGSTOP)  # so that the job does not end at once
    try:
        stopped = await call("POST", f"searches/{name}/stop", body=b"")
        assert (stopped.status, stopped.json["state"]) == (202, "STOPPED")
        early = await call("DELETE", f"searches/{name}", params={"jobs": 1})
        assert early.status == 409
        assert early.json["message"].endswith("of search s has not ended.")
    finally:
        os.kill(supervisor, signal.SIGCONT)

    async def killed():
        made = (await call("GET", "jobs", params={"search": name})).json["jobs"]
        return {each["state"] for each in made} == {"KILLED"}

    await until_async(killed, "the end of its jobs")
    assert (await call("DELETE", f"searches/{name}", params={"jobs": 1})).status == 204
    assert (await call("GET", f"jobs/{job['id']}")).status == 404


async def test_its_trials_share_slots_as_one_job(search, submit, call, jp_serverapp):
    heard = {}

    async def listener(logger, schema_id, data):
        heard[data["job"]] = data["search"]

    jp_serverapp.event_logger.add_listener(schema_id=SCHEMA_ID, listener=listener)
    other = (await submit(name="other")).json["id"]
    name = (await search(SLEEPER, parallel=3)).json["id"]

    async def three():
        trials = (await call("GET", f"searches/{name}/trials")).json["trials"]
        jobs = [each["job"] for each in trials if each["job"]]
        return jobs if len(jobs) == 3 else None

    first, second, _ = await until_async(three, "three jobs")
    assert (await call("GET", f"jobs/{first}")).json["slots"] == 1
    reason = (await call("GET", f"jobs/{second}")).json["reason"]
    assert reason["text"].startswith("It waits: its search has 1 slot, and 1 earlier trial has it.")
    assert name not in reason["text"]
    assert {each["id"]: each["search"] for each in (await call("GET", "cluster")).json["jobs"]}[second] == name
    assert (heard[other], heard[first]) == ("", name), "the bus says which jobs are trials"
    third = (await submit(name="third")).json["id"]
    assert "other and the search s" in (await call("GET", f"jobs/{third}")).json["reason"]["text"]
    path = f"searches/{name}/what-if"
    asked = (await call("GET", path, params={"priority": "10000"})).json
    assert [(each["job"], each["name"], each["now"]) for each in asked["shares"]] == [
        (other, "other", 1),
        (name, "the search s", 1),
        (third, "third", 0),
    ]
    assert (asked["job"], asked["priority"], asked["ends_then"]) == (name, 10000, None)
    assert (await call("GET", f"searches/{name}")).json["spec"]["job"]["priority"] == 5000
    for params in ({}, {"priority": "high"}, {"priority": "0"}, {"instance_group": "nowhere"}):
        refused = await call("GET", path, params=params)
        assert (refused.status, refused.json["field"]) in ((400, "priority"), (422, *params)), params
    await call("POST", f"searches/{name}/stop", body=b"")
    assert (await call("GET", path, params={"priority": "8"})).status == 409
    await call("POST", f"jobs/{other}/stop", body=b"")


async def test_values_can_be_added_where_the_order_is_free(search, call):
    name = (await search(SLEEPER, algorithm="random", trials=50, points=[], parallel=1, order="free")).json["id"]
    answer = await call("POST", f"searches/{name}/trials", body={"points": [{"x": 0.125}]})
    log = (await call("GET", f"searches/{name}/decisions")).json["decisions"]
    if answer.status == 202:
        assert [each["text"] for each in log if each["kind"] == "points"] == ["values were given to try: x=0.125"]
    else:  # all fifty have their values already
        assert (answer.status, answer.json["code"]) == (409, "conflict")
    wrong = await call("POST", f"searches/{name}/trials", body={"points": [{"y": 1}]})
    assert (wrong.status, wrong.json["field"]) == (422, "points")
    await call("POST", f"searches/{name}/stop", body=b"")


async def test_a_script_that_writes_no_metric_says_what_is_missing(search, call, becomes):
    script = b"print('nothing')\n"
    name = (await search(script, fail_fast=False)).json["id"]

    async def failed():
        view = (await call("GET", f"searches/{name}")).json
        return view if view["state"] == "FAILED" else None

    view = await until_async(failed, "the failure")
    assert view["message"] == "No trial has a finite 'loss': 3 of 3 failed; the search has seen no metric."
    script = SCRIPT.replace(b'"loss"', b'"error"')
    name = (await search(script, job={"name": "other"}, points=POINTS[:2])).json["id"]
    view = await until_async(failed, "the failure")
    assert view["message"].endswith("the search has seen accuracy, error.")


@pytest.mark.parametrize(
    ("changes", "status", "field", "sentence"),
    [
        ({"metric": 3}, 400, "metric", "metric must be a text, not 3."),
        ({"spce": SPACE}, 400, "spce", "Did you mean 'space'?"),
        ({"algorithm": "random", "points": [], "trials": 0}, 422, "trials", "1 to 10,000"),
        ({"space": {"x": {"kind": "uniform", "low": 1, "high": 0}}}, 422, "space.x", "begins at 1"),
        ({"space": {"x": {"kind": "normal"}}}, 400, "space[...]", ""),
        ({"points": [{"y": 1}]}, 422, "points", "'y'"),
        ({"job": {"args": ["{lr}"]}}, 400, "args", "{lr}"),
        ({"job": {"name": "a b"}}, 422, "name", "a b"),
        ({"job": {"main": "tran.py"}}, 400, "main", "Did you mean 'train.py'?"),
        ({"job": {"instance_group": "nowhere"}}, 422, "instance_group", "nowhere"),
        ({"job": {"max_workers": 0}}, 422, "max_workers", "max_workers"),
        (
            {"algorithm": "halving", "epochs": 9, "min_epochs": 1, "trials": 9, "points": []},
            422,
            "min_epochs",
            "resource=",
        ),
        ({"algorithm": "mine", "points": [], "trials": 3}, 422, "algorithm", "There is no search algorithm 'mine'"),
        ({"algorithm": "manual", "points": []}, 422, "trials", "has 1 to 10,000 trials, not 0"),
        ({"algorithm": "random", "points": [], "trials": 3, "options": {"startup": 3}}, 422, "", "startup"),
        ({"archive": b"no archive"}, 400, "", "archive"),
        ({"direction": "up"}, 422, "direction", "minimize"),
    ],
)
async def test_what_is_wrong_is_said_and_leaves_nothing(search, call, tmp_path, changes, status, field, sentence):
    answer = await search(**changes)
    assert answer.status == status, answer.json
    if field and "[" not in field:
        assert answer.json["field"] == field
    assert sentence in f"{answer.json['message']} {answer.json['hint']}"
    if not {"archive", "main"} & {*changes, *changes.get("job", {})}:  # a preview has no files
        assert (await search(**changes, preview=True)).json == answer.json
    assert (await call("GET", "searches")).json == {"searches": []}
    assert [*(tmp_path / "edt" / "uploads").iterdir()] == []
    folder = tmp_path / "edt" / "searches"
    assert not folder.exists() or [*folder.iterdir()] == []


async def test_a_preview_counts_and_starts_nothing(search, call):
    halving = {"algorithm": "", "epochs": 27, "min_epochs": 1, "trials": 81, "points": []}
    elastic = {"framework": "edtPyTorch", "max_workers": 1, "args": ["{y}"]}
    answer = await search(**halving, job=elastic, space={**SPACE, "y": SPACE["x"]}, preview=True)
    assert answer.status == 200, answer.json
    assert answer.json["text"] == "81 trials, 243 epochs instead of 2,187."
    assert [(each["budget"], each["trials"], each["promoted"]) for each in answer.json["rungs"]] == [
        (1, 81, 27),
        (3, 27, 9),
        (9, 9, 3),
        (27, 3, 0),
    ]
    assert answer.json["notes"] == [
        "x stands in no argument: the script has to read it from config.json or edt_sdk.params()."
    ]
    # Eighty-one trials of one slot each ask for all there are, as one job.
    assert answer.json["forecast"]["slots"] == len((await call("GET", "cluster")).json["slots"])
    answer = await search(preview=True)
    assert answer.json["text"] == "3 trials; the script says how long each trains."
    assert (await call("GET", "searches")).json == {"searches": []}


async def test_a_name_is_taken_once(search, becomes):
    name = (await search()).json["id"]
    again = await search()
    assert (again.status, again.json["code"]) == (409, "conflict")
    await becomes(name, "FINISHED")


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("searches", {"state": "FLYING"}),
        ("searches", {"limit": "0"}),
        ("searches/x/trials", {"after": "a"}),
        ("searches/x/trials", {"state": "SUSPENDED"}),
        ("searches/x/reports", {"since": "-1"}),
        ("searches/x/decisions", {"limit": "1000000"}),
    ],
)
async def test_a_query_that_makes_no_sense(call, path, params):
    answer = await call("GET", path, params=params)
    assert (answer.status, answer.json["field"]) == (400, next(iter(params)))


class TestSomebodyElse(AsAnn):
    async def test_may_do_nothing_with_my_search(self, search, call, becomes):
        mine = (await search()).json
        assert mine["owner"] == "ann"
        bob = {"Authorization": "token bob-secret"}
        assert (await call("GET", "searches", headers=dict(bob))).json == {"searches": []}
        for method, path in (
            ("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/stop"),
            ("GET", "/trials"), ("POST", "/trials"), ("GET", "/reports"), ("GET", "/decisions"),
            ("POST", "/again"), ("GET", "/replay"),
        ):  # fmt: skip
            body = b'{"parallel": 2}' if method == "PATCH" else b'{"points": [{"x": 1}]}' if path == "/trials" else b""
            body = body if method in ("POST", "PATCH") else None
            answer = await call(method, f"searches/{mine['id']}{path}", body=body, headers=dict(bob))
            assert (answer.status, answer.json["code"]) == (403, "not_allowed"), (method, path)
            assert answer.json["search"] == mine["id"]
        await becomes(mine["id"], "FINISHED")
        # A name belongs to one user.
        theirs = await search(headers=dict(bob))
        assert (theirs.status, theirs.json["owner"]) == (201, "bob")

        async def over():
            return (await call("GET", f"searches/{theirs.json['id']}", headers=dict(bob))).json["state"] == "FINISHED"

        await until_async(over, "the end of the other search")
