"""Suspend and resume over REST: of a job that waits, one that sleeps, one that trains and one that has ended."""

from __future__ import annotations

import pytest

from tests.waiting import until_async

LEAVER = {"train.py": b"print('no training here', flush=True)\n"}


@pytest.fixture
def trainer(slow_trainer):
    return {"train.py": slow_trainer.encode()}


@pytest.fixture
def becomes(call):
    """The job once it is in one of these states."""

    async def wait(job, *states):
        async def look():
            view = (await call("GET", f"jobs/{job}")).json
            return view if view["state"] in states else None

        return await until_async(look, f"{job} in {' or '.join(states)}")

    return wait


async def test_a_suspended_job_holds_nothing_and_comes_back(submit, call, becomes):
    first, _, third = [(await submit()).json["id"] for _ in range(3)]
    answer = await call("POST", f"jobs/{first}/suspend", body=b"")
    assert answer.status == 202
    assert answer.json["reason"]["code"] == "suspended"
    view = await becomes(first, "SUSPENDED")
    assert (view["slots"], view["ended"]) == (0, None)
    assert f"edt resume {first}" in view["reason"]["text"]
    await becomes(third, "LAUNCHING", "RUNNING")
    assert (await call("POST", f"jobs/{first}/suspend", body=b"")).json["state"] == "SUSPENDED"

    answer = await call("POST", f"jobs/{first}/resume", body=b"")
    assert (answer.status, answer.json["state"]) == (202, "PENDING")
    await call("POST", f"jobs/{third}/stop", body=b"")
    await becomes(first, "LAUNCHING", "RUNNING")
    kinds = [event["kind"] for event in (await call("GET", f"jobs/{first}/events")).json["events"]]
    assert kinds.index("job_suspended") < kinds.index("job_resumed")


async def test_a_suspended_job_can_be_stopped(submit, call, becomes):
    job = (await submit()).json["id"]
    await call("POST", f"jobs/{job}/suspend", body=b"")
    await becomes(job, "SUSPENDED")
    await call("POST", f"jobs/{job}/stop", body=b"")
    await becomes(job, "KILLED")


NO_CHECKPOINTS = (
    (b"{", 400, "invalid_request", "JSON"),
    (b"[]", 400, "invalid_request", "object"),
    ({"checkpoint": 3}, 400, "invalid_request", "checkpoint"),
    ({"checkpoint": ""}, 400, "invalid_request", "epoch-3"),
    ({"checkpoint": "../../etc/passwd"}, 400, "invalid_request", "epoch-3"),
    ({"checkpoint": "newest"}, 400, "invalid_request", "newest"),
    ({"epoch": 3}, 400, "invalid_request", "epoch"),
    ({"checkpoint": "epoch-3"}, 404, "not_found", "epoch-3"),
)


async def test_checkpoints_that_cannot_be_gone_back_to(submit, call, becomes):
    job = (await submit(framework="edtPyTorch")).json["id"]
    await call("POST", f"jobs/{job}/suspend", body=b"")
    await becomes(job, "SUSPENDED")
    for body, status, code, word in NO_CHECKPOINTS:
        answer = await call("POST", f"jobs/{job}/resume", body=body)
        assert (answer.status, answer.json["code"]) == (status, code), answer.json
        assert word in answer.json["message"] + answer.json["hint"]
        assert (await call("GET", f"jobs/{job}")).json["state"] == "SUSPENDED"


async def test_what_is_over_is_refused_by_both(submit, call, becomes):
    job = (await submit(LEAVER)).json["id"]
    await becomes(job, "FAILED")
    for verb in ("suspend", "resume"):
        answer = await call("POST", f"jobs/{job}/{verb}", body=b"")
        assert (answer.status, answer.json["code"], answer.json["state"]) == (409, "conflict", "FAILED"), verb
    assert "never began to train" in answer.json["message"]


@pytest.mark.long  # the same story with the SDK: sdk/client/test_against_server.py
async def test_a_training_goes_back_to_a_checkpoint_and_ends_for_good(submit, trainer, call, becomes, tmp_path):
    go = tmp_path / "go"
    job = (await submit(trainer, args=[str(go)], max_workers=2)).json["id"]

    async def names():
        found = (await call("GET", f"jobs/{job}/checkpoints")).json["checkpoints"]
        return [each["name"] for each in found if each["kind"] == "exact"]

    async def second_epoch():
        return "epoch-2" in await names()

    await until_async(second_epoch, "the second epoch's checkpoint")
    answer = await call("POST", f"jobs/{job}/resume", body={"checkpoint": "epoch-1"})
    assert (answer.status, answer.json["code"]) == (409, "conflict")
    assert "uspend it first" in answer.json["hint"]
    running = (await call("POST", f"jobs/{job}/resume", body={})).json
    assert running["state"] == "RUNNING"  # nothing to resume, nothing changed

    await call("POST", f"jobs/{job}/suspend", body=b"")
    await becomes(job, "SUSPENDED")
    assert (await call("GET", f"jobs/{job}/workers")).json["workers"] == []
    missing = await call("POST", f"jobs/{job}/resume", body={"checkpoint": "epoch-99"})
    assert (missing.status, missing.json["code"]) == (404, "not_found")
    # The latest of them: nobody knows how many epochs it has trained until here.
    assert (await names())[-1] in missing.json["hint"]
    go.touch()
    answer = await call("POST", f"jobs/{job}/resume", body={"checkpoint": "model_epoch_1.pth"})
    assert answer.status == 202, answer.json
    view = await becomes(job, "FINISHED", "FAILED")
    assert (view["state"], view["progress"]["update"]) == ("FINISHED", 200), view["message"]
    events = (await call("GET", f"jobs/{job}/events")).json["events"]
    (resumed,) = [event for event in events if event["kind"] == "job_resumed"]
    assert resumed["data"]["checkpoint"] == "epoch-1"

    for body in (b"", {"checkpoint": "epoch-1"}):
        answer = await call("POST", f"jobs/{job}/resume", body=body)
        assert (answer.status, answer.json["code"], answer.json["state"]) == (409, "conflict", "FINISHED")

    second = await submit(trainer, args=[str(go)], warm_start=job, mode="fast")
    assert (second.status, second.json["mode"], second.json["warm_start"]) == (201, "fast", job)
    view = await becomes(second.json["id"], "FINISHED", "FAILED")
    assert view["state"] == "FINISHED", view["message"]


async def test_a_job_whose_queue_was_removed_goes_on_in_another(submit, trainer, call, becomes, tmp_path):
    await call("POST", "instance-groups", body={"name": "night shift"})
    job = (await submit(trainer, args=[str(tmp_path / "go")], instance_group="night shift")).json["id"]

    async def trains():
        view = (await call("GET", f"jobs/{job}")).json
        return view["progress"] and view["progress"]["update"] > 0

    await until_async(trains, "training")
    await call("POST", f"jobs/{job}/stop", body=b"")
    await becomes(job, "KILLED")
    assert (await call("DELETE", "instance-groups/night shift")).status == 204
    refused = await call("POST", f"jobs/{job}/resume", body=b"")
    assert (refused.status, refused.json["field"]) == (422, "instance_group")
    assert "'night shift'" in refused.json["message"]
    assert f"edt resume {job} --instance-group default" in refused.json["hint"]
    refused = await call("POST", f"jobs/{job}/resume", body={"instance_group": "nowhere"})
    assert (refused.status, refused.json["hint"]) == (422, "Choose one of: default.")
    view = (await call("GET", f"jobs/{job}")).json
    assert (view["state"], view["instance_group"]) == ("KILLED", "night shift")

    answer = await call("POST", f"jobs/{job}/resume", body={"instance_group": "default"})
    assert (answer.status, answer.json["instance_group"]) == (202, "default"), answer.json
    (tmp_path / "go").touch()
    view = await becomes(job, "FINISHED", "FAILED")
    assert (view["state"], view["instance_group"]) == ("FINISHED", "default"), view["message"]


async def test_a_suspended_job_goes_on_in_the_queue_that_is_named(submit, call, becomes):
    await call("POST", "instance-groups", body={"name": "night"})
    job = (await submit()).json["id"]
    await call("POST", f"jobs/{job}/suspend", body=b"")
    await becomes(job, "SUSPENDED")
    answer = await call("POST", f"jobs/{job}/resume", body={"instance_group": "night"})
    assert (answer.status, answer.json["instance_group"]) == (202, "night")
    story = " ".join(event["text"] for event in (await call("GET", f"jobs/{job}/events")).json["events"])
    assert "instance group is now night (was default)" in story
