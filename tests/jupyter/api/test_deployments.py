"""Deployments over REST. Versions answer by code of their own, so that nothing is trained."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest
from tornado.httpclient import AsyncHTTPClient

from tests.jupyter.users import AsAnn
from tests.packages import WRITES_WEIGHTS
from tests.waiting import until_async

PREDICTOR = b"""
from pathlib import Path

class Predictor:
    def __init__(self, model_dir, params):
        (weights,) = Path(model_dir).glob("*.pth")
        self.word = weights.read_text()
        if self.word == "broken":
            raise ValueError("there is no such layer")

    def predict(self, inputs):
        if self.word == "raises":
            raise ValueError("a bad day")
        return [f"{self.word} {each}" for each in inputs]
"""


@pytest.fixture
def version(submit, call):
    """Register a version of a name that answers with this word, and return its name with its number."""

    async def make(word, name="echo", files=None, headers=None):
        files = {"train.py": WRITES_WEIGHTS, "predictor.py": PREDICTOR} if files is None else files
        job = (await submit(files, framework="PyTorch", args=[word], headers=headers)).json["id"]

        async def ended():
            return (await call("GET", f"jobs/{job}", headers=headers)).json["state"] == "FINISHED"

        await until_async(ended, f"the end of {job}")
        made = await call("POST", "versions", body={"job": job, "name": name}, headers=headers)
        assert made.status == 201, made.body
        return f"{name}/{made.json['number']}"

    return make


@pytest.fixture
def state(call):
    """Wait until a deployment is in this state, and return it."""

    async def wait(name, wanted):
        async def look():
            found = (await call("GET", f"deployments/{name}")).json
            return found if found["state"] == wanted else None

        return await until_async(look, f"{name} is {wanted}")

    return wait


@pytest.fixture
def ask(call):
    """What a deployment answers through this server."""

    async def send(name, *inputs):
        return await call("POST", f"deployments/{name}/predict", body={"inputs": list(inputs)})

    return send


async def outside(url, *inputs, **headers):
    """Status and content of a request past this server."""
    answer = await AsyncHTTPClient().fetch(
        url,
        method="POST",
        body=json.dumps({"inputs": list(inputs)}),
        headers={"Content-Type": "application/json", **headers},
        raise_error=False,
    )
    return answer.code, json.loads(answer.body)


async def test_a_version_answers_under_its_name_and_with_a_key(version, call, state, ask, tmp_path):
    await version("hello")
    made = await call("POST", "deployments", body={"version": "echo", "space": "production", "description": "first"})
    assert made.status == 201
    assert made.headers["Location"].endswith("/edt/api/deployments/echo")
    shown = await state("echo", "READY")
    assert (shown["version"], shown["ready"], shown["slots"], shown["replicas"]) == ("echo/1", 1, 1, [1, 1])
    answer = await ask("echo", "ann", "bob")
    assert (answer.status, answer.json) == (200, {"outputs": ["hello ann", "hello bob"], "version": 1})
    assert answer.headers["X-EDT-Version"] == "echo/1"
    (listed,) = (await call("GET", "deployments", params={"space": "production"})).json["deployments"]
    assert listed["name"] == "echo"
    assert (await call("GET", "deployments", params={"space": "test"})).json["deployments"] == []
    # Past this server a key is needed, which is kept nowhere.
    assert (await outside(shown["url"], "x"))[0] == 401
    made = (await call("POST", "deployments/echo/keys", body={"name": "shop", "days": 1})).json
    key, identity = made["key"], made["id"]
    assert await outside(shown["url"], "x", Authorization=f"Bearer {key}") == (
        200, {"outputs": ["hello x"], "version": 1},
    )  # fmt: skip
    (kept,) = (await call("GET", "deployments/echo")).json["keys"]
    assert (kept["id"], kept["name"], kept["key"]) == (identity, "shop", "")
    for file in (tmp_path / "edt").rglob("*"):
        if file.is_file():
            assert key.encode() not in file.read_bytes(), file
    assert (await call("DELETE", f"deployments/echo/keys/{identity}")).status == 204
    assert (await outside(shown["url"], "x", Authorization=f"Bearer {key}"))[0] == 401, "revoked at once"
    unknown = await call("DELETE", f"deployments/echo/keys/{identity}")
    assert unknown.status == 404
    assert "echo has no key" in unknown.json["message"]
    # Its counters are those of both ways.
    counters = (await state("echo", "READY"))["counters"]["1"]
    assert counters["requests"]["200"] == 2
    changed = await call("PATCH", "deployments/echo", body={"public": True, "origins": ["https://shop.example.com"]})
    assert changed.json["public"]

    async def open_to_all():
        return (await outside(shown["url"], "x"))[0] == 200

    await until_async(open_to_all, "the edge knows it")


async def test_another_version_takes_over_and_one_that_cannot_be_served_does_not(version, call, state, ask):
    await version("one")
    await call("POST", "deployments", body={"version": "echo/1"})
    await state("echo", "READY")
    await version("two")
    started = await call("POST", "deployments/echo/revisions", body={"version": "echo"})
    assert started.status == 201
    again = await call("POST", "deployments/echo/revisions", body={"version": "echo/1"})
    assert again.status == 409
    assert "about to take over" in again.json["message"]

    async def answers(word):
        return (await ask("echo", "x")).json.get("outputs") == [f"{word} x"]

    await until_async(lambda: answers("two"), "the second version")
    kept = await call("DELETE", "versions/echo/2")
    assert kept.status == 409
    assert kept.json["message"] == "echo/2 is served by the deployment echo."
    await version("broken")
    await call("POST", "deployments/echo/revisions", body={"version": "echo/3"})

    async def given_up():
        newest = (await call("GET", "deployments/echo")).json["revisions"][0]
        return newest["outcome"] if newest["version"] == "echo/3" else ""

    outcome = await until_async(given_up, "the end of the third revision")
    assert "there is no such layer" in outcome
    assert await answers("two"), "the one before goes on"
    back = await call("POST", "deployments/echo/rollback", body={})
    assert back.status == 200
    await until_async(lambda: answers("one"), "the first version again")
    numbers = [(each["number"], each["version"]) for each in (await call("GET", "deployments/echo")).json["revisions"]]
    assert numbers == [(4, "echo/1"), (3, "echo/3"), (2, "echo/2"), (1, "echo/1")]


async def test_a_canary_with_errors_is_given_up_by_itself(version, call, state, ask):
    await version("good")
    await call("POST", "deployments", body={"version": "echo", "public": True})
    url = (await state("echo", "READY"))["url"]
    await version("raises")
    await call("POST", "deployments/echo/revisions", body={"version": "echo/2", "canary": 50})

    async def shares():
        found = (await call("GET", "deployments/echo")).json
        return [each["share"] for each in found["revisions"]] == [50, 50] and found["url"]

    await until_async(shares, "both answer")
    # A caller stays on one side, so there are several: each has a key of its own.
    keys = [(await call("POST", "deployments/echo/keys", body={"name": f"k{n}"})).json["key"] for n in range(8)]

    async def given_up():
        answers = await asyncio.gather(*(outside(url, "x", Authorization=f"Bearer {key}") for key in keys * 4))
        assert {status for status, _ in answers} <= {200, 500}
        newest = (await call("GET", "deployments/echo")).json["revisions"][0]
        return newest["outcome"]

    outcome = await until_async(given_up, "the canary is given up")
    assert "of its" in outcome
    assert "were errors" in outcome

    async def well():
        answers = await asyncio.gather(*(outside(url, "x", Authorization=f"Bearer {key}") for key in keys))
        return {status for status, _ in answers} == {200}

    await until_async(well, "all are answered by the one before")


async def test_a_version_that_cannot_be_loaded_fails_with_the_reason_and_may_be_started_again(
    version, call, state, ask
):
    await version("broken")
    await call("POST", "deployments", body={"version": "echo"})
    failed = await state("echo", "FAILED")
    assert "echo/1 cannot be served" in failed["message"]
    assert "there is no such layer" in failed["message"]
    refused = await ask("echo", "x")
    assert refused.status == 503
    assert "there is no such layer" in refused.json["message"]
    assert (await call("POST", "deployments/echo/start", body={})).status == 200
    await state("echo", "FAILED")


async def test_a_stopped_deployment_refuses_and_holds_nothing(version, call, state, ask, edt):
    await version("word")
    await call("POST", "deployments", body={"version": "echo"})
    await state("echo", "READY")
    assert (await call("POST", "deployments/echo/stop", body={})).json["state"] == "STOPPED"
    refused = await ask("echo", "x")
    assert (refused.status, refused.json["message"]) == (409, "echo is stopped.")
    assert (await call("POST", "deployments/echo/stop", body={})).status == 409

    async def free():
        return all(slot["job"] is None for slot in (await call("GET", "cluster")).json["slots"])

    await until_async(free, "its slot is free")
    await until_async(lambda: edt.service.deployments.reconciler.edge.address is None, "no edge is needed")
    assert (await call("POST", "deployments/echo/start", body={})).status == 200
    await state("echo", "READY")
    assert (await ask("echo", "x")).json["outputs"] == ["word x"]
    # Who stops its job stops it.
    job = (await call("GET", "deployments/echo")).json["revisions"][0]["job"]
    await call("POST", f"jobs/{job}/stop")
    await state("echo", "STOPPED")
    assert (await call("DELETE", "deployments/echo")).status == 204
    assert (await call("GET", "deployments/echo")).status == 404


REFUSED = [
    ({"version": "none"}, 404, "name"),
    ({"version": "echo@best"}, 404, "alias"),
    ({"version": "echo/7"}, 404, "number"),
    ({"version": ""}, 400, None),
    ({"name": "a/b"}, 400, "name"),
    ({"replicas": [2, 1]}, 422, "replicas"),
    ({"replicas": [0, 0]}, 422, "replicas"),
    ({"replicas": [-1, 1]}, 422, "replicas"),
    ({"replicas": "many"}, 422, "replicas"),
    ({"max_batch": 0}, 422, "max_batch"),
    ({"max_batch": 1025}, 422, "max_batch"),
    ({"deadline": 0}, 422, "deadline"),
    ({"priority": 0}, 422, "priority"),
    ({"origins": ["shop"]}, 422, "origins"),
    ({"idle_after": 0}, 422, "idle_after"),
    ({"canary": 10}, 422, "canary"),
    ({"instance_group": "none"}, 422, "instance_group"),
    ({"replica": 3}, 422, "replica"),
]


async def test_what_cannot_be_deployed_says_why(version, call):
    await version("word")
    for change, status, field in REFUSED:
        refused = await call("POST", "deployments", body={"version": "echo", **change})
        assert (refused.status, refused.json.get("field")) == (status, field), (change, refused.body)
    assert (await call("GET", "deployments")).json["deployments"] == []


async def test_a_preview_says_when_it_would_answer_and_on_whose_slots(version, call):
    await version("word")
    new = {"version": "echo", "replicas": [0, 2]}
    free = await call("POST", "previews/deployment", body=new)
    assert free.status == 200, free.body
    assert (free.json["code"], free.json["slots"]) == ("now", 2)
    assert free.json["text"].endswith("(2 are free), and grow to 2 while it has the load.")
    for change, status, field in REFUSED:
        if field != "name":
            refused = await call("POST", "previews/deployment", body={"version": "echo", **change})
            assert (refused.status, refused.json.get("field")) == (status, field), (change, refused.body)
    assert (await call("GET", "deployments")).json["deployments"] == []


async def test_a_script_of_its_own_needs_a_predictor(version, call):
    await version("word", files={"train.py": WRITES_WEIGHTS})
    refused = await call("POST", "deployments", body={"version": "echo"})
    assert refused.status == 422
    assert "predictor.py" in refused.json["hint"]


async def test_verbs_of_revisions_that_do_not_fit_say_why(version, call, state):
    await version("word")
    await call("POST", "deployments", body={"version": "echo"})
    await state("echo", "READY")
    for verb, says in (
        ("promote", "No revision of echo is about to take over."),
        ("abort", "No revision of echo is about to take over."),
        ("rollback", "echo has served nothing before echo/1."),
        ("start", "echo is not stopped."),
    ):
        refused = await call("POST", f"deployments/echo/{verb}", body={})
        assert (refused.status, refused.json["message"]) == (409, says)
    assert (await call("PATCH", "deployments/echo", body={})).status == 400
    assert (await call("POST", "deployments/echo/keys", body={"name": "a b"})).status == 400
    taken = await call("POST", "deployments", body={"version": "echo"})
    assert taken.status == 409
    assert taken.json["message"] == "You have a deployment 'echo' already."


class TestOfOthers(AsAnn):
    """What ann has deployed, and bob."""

    BOB = {"Authorization": "token bob-secret"}

    async def test_others_do_not_see_it_and_their_names_are_others(self, version, call, state, ask):
        await version("ann")
        await call("POST", "deployments", body={"version": "echo"})
        await state("echo", "READY")
        assert (await call("GET", "deployments", headers=self.BOB)).json["deployments"] == []
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("POST", "/predict")):
            body = {"inputs": ["x"]} if method == "POST" else None
            refused = await call(method, f"deployments/echo{path}", body=body, headers=self.BOB)
            assert refused.status == 404, (method, path)
        await version("bob", headers=self.BOB)
        taken = await call("POST", "deployments", body={"version": "echo"}, headers=self.BOB)
        assert (taken.status, taken.json["message"]) == (409, "Another user has a deployment 'echo' already.")
        assert (await ask("echo", "x")).json["outputs"] == ["ann x"]


async def test_a_server_that_comes_back_goes_on_with_the_edge_and_the_replicas(version, call, state, ask, edt):
    await version("word")
    await call("POST", "deployments", body={"version": "echo", "public": True})
    before = await state("echo", "READY")
    edge = edt.service.deployments.reconciler.edge.address
    await edt.stop_extension()
    assert await outside(before["url"], "x") == (200, {"outputs": ["word x"], "version": 1}), "without a server"
    await edt._start_jupyter_server_extension(edt.serverapp)
    await state("echo", "READY")
    assert edt.service.deployments.reconciler.edge.address == edge
    assert (await ask("echo", "y")).json["outputs"] == ["word y"]


async def test_a_supervisor_that_dies_is_replaced_and_the_deployment_answers_again(version, call, state, ask, edt):
    await version("word")
    await call("POST", "deployments", body={"version": "echo"})
    job = (await state("echo", "READY"))["revisions"][0]["job"]
    supervisor = edt.service.store.job(job).supervisor
    os.kill(supervisor.pid, signal.SIGKILL)
    await until_async(lambda: edt.service.store.job(job).supervisor != supervisor, "another supervisor")
    await state("echo", "READY")
    assert (await ask("echo", "x")).json["outputs"] == ["word x"]
    events = (await call("GET", f"jobs/{job}/events")).json["events"]
    assert sum(each["text"].startswith("answers with 1 replica (pid ") for each in events) == 2
