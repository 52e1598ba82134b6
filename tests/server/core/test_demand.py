"""How many slots a resource group would need: by hand, and over random histories against the core that gets them."""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.job import JobPatch
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.demand import Demand
from edt_server.core.events import JobArrived, JobChanged, JobDemand, JobHeld, PlanChanged, SlotReleased, SlotsChanged
from edt_server.core.instructions import Revoke
from tests.server.core.test_properties import HOSTS, PRIORITIES, some_event, some_plan


def of(play, group="default"):
    return play.core.demand()[group]


def test_a_job_asks_for_what_its_training_can_use_and_for_no_more(play):
    p = play(2)
    p.arrive("a", max_workers=6)
    assert of(p) == Demand(more=0, total=1), "one slot until it trains"
    p.train("a", 100)
    assert of(p) == Demand(more=4, total=6)
    p.train("a", 3)
    assert of(p) == Demand(more=1, total=3)
    p.slots(8)
    assert of(p) == Demand(more=0, total=3)
    p.gone("a")
    assert of(p) == Demand(more=0, total=0)


def test_jobs_that_wait_for_something_else_than_slots_ask_for_none(play):
    p = play(1, Plan(instance_groups=(InstanceGroup(name="default", max_running=1),)))
    p.run("a", max_workers=3)
    p.run("b", max_workers=5)
    assert of(p).total == 3, "b waits for the quota"
    p.suspend("a")
    p.release_all()
    assert of(p).total == 5, "b has the place"
    p.change("b", max_workers=4)
    assert of(p).more == 3


def test_a_job_held_at_its_budget_asks_for_none(play):
    p = play(1)
    p.run("a", max_workers=3)
    p.core.apply(JobDemand("a", 3), 5.0)
    p.core._jobs["a"].budget = 2
    p.step(JobHeld("a", 2, 9))
    assert of(p) == Demand(more=0, total=0)


def test_slots_on_their_way_are_not_asked_for_again(play):
    p = play(8)
    p.run("a", max_workers=8)
    p.run("b", max_workers=4)
    assert p.core.leaving("a")
    assert of(p) == Demand(more=4, total=12)


@pytest.mark.parametrize(
    ("group", "total"),
    [
        ({"borrow": 3}, 3),
        ({"user_slots": 2}, 2),
        ({"own": 1, "borrow": 0}, 1),
        ({"own": 50}, 9),
        ({"own": 50, "lend": 0}, 9),
        ({"throughput_aware": True}, 9),
    ],
)
def test_no_more_than_the_plan_ever_lets_it_have(play, group, total):
    p = play(0, Plan(instance_groups=(InstanceGroup(name="default", **group),)))
    assert of(p).more == 0
    p.run("a", max_workers=9)
    assert of(p) == Demand(more=total, total=total)


def test_slots_that_are_not_lent_come_on_top(play):
    groups = InstanceGroup(name="default"), InstanceGroup(name="mine", own=4, lend=1)
    p = play(0, Plan(instance_groups=groups))
    p.run("a", max_workers=5)
    assert of(p).total == 8, "3 slots of `mine` stay idle before `a` has 5"
    p.slots(8)
    assert p.shares == {"a": 5}
    assert of(p) == Demand(more=0, total=8)


def test_a_job_that_can_never_fit_asks_for_nothing(play):
    p = play(2, Plan(instance_groups=(InstanceGroup(name="default", borrow=3),)))
    p.run("a", min_workers=4, max_workers=8)
    assert of(p) == Demand(more=0, total=0)
    p.run("b", min_workers=2, max_workers=8, slots_per_unit=2)
    assert of(p).total == 2, "a third slot is no unit of two"


def test_trials_of_a_search_ask_together(play):
    p = play(1)
    for name in ("a", "b", "c"):
        p.run(name, max_workers=2, search="s")
    assert of(p) == Demand(more=5, total=6)


def test_each_resource_group_has_its_own_and_the_answer_cannot_be_changed(play):
    resources = ResourceGroup(name="default"), ResourceGroup(name="far", hosts=("x",))
    groups = InstanceGroup(name="default"), InstanceGroup(name="away", resource_group="far")
    p = play(0, Plan(resource_groups=resources, instance_groups=groups))
    p.run("a", max_workers=2)
    p.run("b", max_workers=7, group="away")
    assert {name: each.more for name, each in p.core.demand().items()} == {"default": 2, "far": 7}
    with pytest.raises(TypeError):
        p.core.demand()["far"] = Demand(0, 0)
    assert copy.deepcopy(p.core).demand() == p.core.demand()


def settled(core, event):
    """The core after the event, when all that was revoked has been released."""
    waiting = [event, *(SlotReleased(job, slot) for job in core.jobs for slot in core.leaving(job))]
    while waiting:
        told = core.apply(waiting.pop(0), 1e6)
        waiting += [SlotReleased(each.job, each.slot) for each in told if isinstance(each, Revoke)]
    return core


def with_more(core, more):
    """A copy of the core that has so many more slots in each resource group, at rest."""
    hosts = {each.name: each.hosts[0] if each.hosts else "some other" for each in core.plan.resource_groups}
    new = [hosts[name] for name, count in more.items() for _ in range(count)]
    slots = [Slot(id=number, host=host) for number, host in enumerate(new, 10_000)]
    return settled(copy.deepcopy(core), SlotsChanged((*core.slots, *slots)))


def held(core):
    return {
        group: sum(len(core.holding(job)) for job in core.jobs if core._jobs[job].pool == group)
        for group in core.demand()
    }


@given(st.integers(0, 2**32), st.integers(5, 60), st.booleans())
def test_with_what_is_asked_for_the_jobs_have_all_they_can_get(seed, length, units):
    """Over random histories: never negative, enough, nothing where all are satisfied, no less for a larger maximum.

    The last holds for single slots only: a unit of two may no longer fit below a limit beside a job that may have more.
    """
    rng = random.Random(seed)
    core = Core()
    for number in range(length):
        leaves = [group.name for group in core.plan.leaves()]
        choice = rng.random()
        if choice < 0.1:
            event = PlanChanged(some_plan(rng, {core._jobs[job].group for job in core.jobs}))
        elif choice < 0.4 and len(core.jobs) < 10:
            unit = rng.choice((1, 1, 1, 2)) if units else 1
            event = JobArrived(
                f"j{number}",
                rng.choice(PRIORITIES),
                unit * rng.randint(2, 6),
                rng.choice(leaves),
                owner=rng.choice(("ana", "bob")),
                min_workers=rng.choice((1, 1, unit)),
                slots_per_unit=unit,
            )
        else:
            event = some_event(core, rng, number, 0, 8)
            if isinstance(event, JobArrived) or (isinstance(event, JobChanged) and event.patch.max_workers is not None):
                continue
            if isinstance(event, SlotsChanged):
                event = SlotsChanged(tuple(Slot(id=each.id, host=rng.choice(HOSTS)) for each in event.slots))
        core.apply(event, float(number))
    asked = core.demand()
    assert all(0 <= each.more <= each.total for each in asked.values())
    if all(len(core.holding(job)) == core.asked(job) for job in core.jobs):
        assert not any(each.more for each in asked.values())
    enough = with_more(core, {name: each.more for name, each in asked.items()})
    assert {name: each.more for name, each in enough.demand().items()} == dict.fromkeys(asked, 0)
    assert held(enough) == held(with_more(core, dict.fromkeys(asked, 200))), "more slots would have been used"
    for job in () if units else core.jobs:
        core.apply(JobChanged(job, JobPatch(max_workers=core._jobs[job].max_workers + 1)), 1e6)
        after = core.demand()
        assert all(after[name].more >= each.more for name, each in asked.items()), f"{job} may have more now"
        asked = after
