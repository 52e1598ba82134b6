"""How the slots are shared, on a live server: with real supervisors, and drivers that tell what they could use."""

from __future__ import annotations

import functools

import pytest

from edt_server.core.events import JobDemand
from tests.waiting import until_async


@pytest.fixture
def edt_config():
    return {"local_slots": 8}


@pytest.fixture
def submit(submit):
    """Elastic jobs, whose number of workers may change."""
    return functools.partial(submit, framework="edtPyTorch")


@pytest.fixture
def train(edt, submit):
    """Submit a job, and let it ask for as many slots as it may have, as if its training had begun."""

    async def start(name, *, demand=8, **settings):
        made = await submit(name=name, **{"max_workers": 8, **settings})
        assert made.status == 201, made.json
        await edt.service.change(lambda change: change.apply(JobDemand(made.json["id"], demand)))
        return made.json["id"]

    return start


@pytest.fixture
def shares(edt, call):
    """Wait until no slot is on its way; how many each of these jobs holds."""

    async def settled(*jobs):
        await until_async(edt.service._ledger.core.settled, "slots given back")
        return tuple([(await call("GET", f"jobs/{job}")).json["slots"] for job in jobs])

    return settled


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(5000, 5000, (4, 4)), (5000, 10000, (3, 5)), (10000, 5000, (5, 3))]
)
async def test_two_jobs_share_eight_slots_by_priority(train, shares, call, edt, first, second, expected):
    one = await train("one", priority=first)
    assert await shares(one) == (8,)
    two = await train("two", priority=second)
    assert await shares(one, two) == expected
    await call("POST", f"jobs/{one}/stop", body=b"")
    await until_async(lambda: one not in edt.service._ledger.core.jobs, "its end")
    assert await shares(two) == (8,)


async def test_priority_and_maximum_count_at_once(train, shares, call):
    one, two = await train("one"), await train("two")
    assert await shares(one, two) == (4, 4)
    await call("PATCH", f"jobs/{two}", body={"priority": 10000})
    assert await shares(one, two) == (3, 5)
    await call("PATCH", f"jobs/{two}", body={"max_workers": 2})
    assert await shares(one, two) == (6, 2)


async def test_jobs_move_between_groups_that_own_lend_and_reclaim(train, shares, call):
    for group in ({"name": "lab", "own": 6}, {"name": "night", "own": 2}):
        assert (await call("POST", "instance-groups", body=group)).status == 201
    guest = await train("guest", instance_group="night")
    assert await shares(guest) == (8,)  # six of them lent by the lab
    groups = {group["name"]: group for group in (await call("GET", "cluster")).json["groups"]}
    assert (groups["night"]["own"], groups["night"]["lenders"]) == (2, {"lab": 6})
    assert (groups["lab"]["lent"], groups["lab"]["borrowers"]) == (6, {"night": 6})
    owner = await train("owner", instance_group="lab")
    assert await shares(guest, owner) == (2, 6)
    assert (await call("PATCH", f"jobs/{owner}", body={"instance_group": "night"})).status == 200
    assert await shares(guest, owner) == (4, 4)
    assert (await call("PATCH", "instance-groups/night", body={"policy": "fifo"})).status == 200
    assert await shares(guest, owner) == (8, 0)
    assert (await call("PATCH", "instance-groups/night", body={"policy": "fairshare", "borrow": 0})).status == 200
    assert await shares(guest, owner) == (1, 1)
    assert (await call("PUT", "plan", body={"instance_groups": [{"name": "night"}]})).status == 200
    assert await shares(guest, owner) == (4, 4)


async def test_least_sizes_and_units(train, shares, submit, call):
    one = await train("one", min_workers=2, slots_per_unit=2)
    two = await train("two", priority=10000)
    assert await shares(one, two) in ((2, 6), (4, 4))
    view = (await call("GET", f"jobs/{one}")).json
    assert (view["min_workers"], view["slots_per_unit"], view["pending_timeout"]) == (2, 2, None)
    refused = await call("PATCH", f"jobs/{one}", body={"max_workers": 3})
    assert (refused.status, refused.json["field"]) == (422, "max_workers")


async def test_a_job_that_gets_no_slot_in_its_time_ends(submit, call):
    await call("PATCH", "resource-groups/default", body={"slots": "1"})
    first = (await submit()).json["id"]
    waits = (await submit(pending_timeout=0.2)).json["id"]

    async def ended():
        view = (await call("GET", f"jobs/{waits}")).json
        return view if view["state"] == "ERROR" else None

    view = await until_async(ended, "the end of its patience")
    assert "no slot" in view["message"]
    assert (await call("GET", f"jobs/{first}")).json["slots"] == 1


async def test_a_waiting_job_says_why_with_its_first_answer(submit, call, edt):
    await call("PATCH", "resource-groups/default", body={"slots": "1"})
    await submit(name="first")
    answer = (await submit(name="second", max_workers=4)).json
    assert answer["state"] == "PENDING"
    service = edt.service
    reason = service._ledger.core.reason(answer["id"], service._ledger.name)
    assert {key: answer["reason"][key] for key in ("code", "held", "entitled", "asked")} == {
        "code": reason.code, "held": reason.held, "entitled": reason.entitled, "asked": reason.asked,
    }  # fmt: skip
    assert answer["reason"]["text"].startswith(reason.text)  # and a forecast
    cluster = (await call("GET", "cluster")).json
    told = {job["id"]: job for job in cluster["jobs"]}[answer["id"]]
    assert (told["held"], told["entitled"]) == (0, 0)
    assert told["reason"].startswith(reason.text)
    assert cluster["groups"][0]["waiting"] == [answer["id"]]


async def test_a_least_size_that_no_plan_can_meet_is_refused(submit, call):
    refused = await submit(max_workers=16, min_workers=16)
    assert refused.status == 422
    assert "16" in refused.json["message"]
    assert "8" in refused.json["message"]
    assert (await call("GET", "jobs")).json["jobs"] == []
