"""Quotas of slots and of running jobs: more jobs wait, with a reason, and go on when a place is free."""

from __future__ import annotations

import os
import random

import pytest

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.job import JobPatch
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import (
    JobArrived,
    JobChanged,
    JobDemand,
    JobGone,
    JobResumed,
    JobSuspended,
    PlanChanged,
    SlotReleased,
    SlotsChanged,
    TimePassed,
)
from tests.server.core.invariants import check, replayed
from tests.server.core.test_properties import some_event

EVENTS = int(os.environ.get("EDT_CORE_EVENTS", "6000")) // 4


def core_of(slots=8, **settings):
    core = Core(Plan(instance_groups=(InstanceGroup(name="default", **settings), InstanceGroup(name="other"))))
    core.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(slots))), 0.0)
    return core


def arrive(core, job, owner="ann", most=8, priority=5000, **more):
    core.apply(JobArrived(job, priority, most, "default", owner, **more), 1.0)
    if job in core.jobs:
        core.apply(JobDemand(job, most), 1.0)
    check(core)


def held(core):
    return {job: len(core.holding(job)) for job in core.jobs}


def settle(core, now=2.0):
    for job in core.jobs:
        for slot in core.leaving(job):
            core.apply(SlotReleased(job, slot), now)
    check(core)


def test_jobs_of_a_user_wait_for_the_quota_of_running_jobs():
    core = core_of(user_running=2)
    for job, owner in (("a1", "ann"), ("a2", "ann"), ("a3", "ann"), ("b1", "bob")):
        arrive(core, job, owner, most=2)
    assert held(core) == {"a1": 2, "a2": 2, "a3": 0, "b1": 2}
    reason = core.reason("a3", lambda job: f"<{job}>")
    assert (reason.code, reason.numbers["quota"], reason.numbers["limit"]) == ("quota", "user_running", 2)
    assert reason.text == (
        "It waits for a quota: 2 jobs of ann may run at once in the instance group default, and <a1>, <a2> do. "
        "It goes on when one of them ends or is suspended."
    )
    core.apply(JobGone("a1"), 2.0)
    assert held(core) == {"a2": 2, "a3": 2, "b1": 2}
    assert core.reason("a3") is None


def test_a_suspended_job_gives_its_place_up_and_queues_again():
    core = core_of(user_running=1)
    arrive(core, "a1", most=2)
    arrive(core, "a2", most=2)
    core.apply(JobSuspended("a1"), 2.0)
    settle(core)
    assert held(core) == {"a1": 0, "a2": 2}
    core.apply(JobResumed("a1"), 3.0)
    assert held(core) == {"a1": 0, "a2": 2}, "the older job must not take the place of the running one"
    assert core.reason("a1").code == "quota"
    core.apply(JobGone("a2"), 4.0)
    assert held(core) == {"a1": 2}


@pytest.mark.parametrize(("policy", "next_one"), [("fairshare", "a2"), ("fifo", "a2"), ("priority", "a3")])
def test_a_free_place_goes_to_the_first_in_line(policy, next_one):
    core = core_of(max_running=1, policy=policy)
    arrive(core, "a1", most=2)
    arrive(core, "a2", "bob", most=2)
    arrive(core, "a3", most=2, priority=9000)
    assert held(core) == {"a1": 2, "a2": 0, "a3": 0}, "nobody loses a place to a newcomer"
    assert core.reason("a2").numbers["quota"] == "max_running"
    core.apply(JobGone("a1"), 2.0)
    assert [job for job, slots in held(core).items() if slots] == [next_one]


def test_a_smaller_quota_takes_the_newest_places_back_and_none_makes_all_run():
    core = core_of()
    for job in ("a1", "a2", "a3"):
        arrive(core, job, most=2)
    default, other = core.plan.instance_groups
    few = InstanceGroup(name="default", user_running=1)
    core.apply(PlanChanged(Plan(instance_groups=(few, other))), 2.0)
    settle(core)
    assert held(core) == {"a1": 2, "a2": 0, "a3": 0}
    core.apply(PlanChanged(Plan(instance_groups=(default, other))), 3.0)
    assert held(core) == {"a1": 2, "a2": 2, "a3": 2}


def test_jobs_that_keep_their_slots_stay_above_a_smaller_quota():
    core = core_of(preemption=False)
    for job in ("a1", "a2"):
        arrive(core, job, most=2)
    few = InstanceGroup(name="default", user_running=1, preemption=False)
    core.apply(PlanChanged(Plan(instance_groups=(few, core.plan.instance_groups[1]))), 2.0)
    arrive(core, "a3", most=2)
    assert held(core) == {"a1": 2, "a2": 2, "a3": 0}


def test_a_job_moves_to_a_group_without_the_quota():
    core = core_of(user_running=1)
    arrive(core, "a1", most=2)
    arrive(core, "a2", most=2)
    core.apply(JobChanged("a2", JobPatch(instance_group="other")), 2.0)
    assert held(core) == {"a1": 2, "a2": 2}
    core.apply(JobChanged("a2", JobPatch(instance_group="default")), 3.0)
    settle(core)
    assert held(core) == {"a1": 2, "a2": 0}


@pytest.mark.parametrize("policy", ["fairshare", "priority", "fifo"])
def test_a_user_has_no_more_slots_than_the_quota(policy):
    core = core_of(user_slots=3, policy=policy)
    arrive(core, "a1")
    assert held(core) == {"a1": 3}
    reason = core.reason("a1")
    assert (reason.code, reason.numbers["quota"]) == ("limit", "user_slots")
    assert "jobs of ann have at most 3 slots in the instance group default" in reason.text
    for job in ("a2", "a3", "a4"):
        arrive(core, job)
    arrive(core, "b1", "bob")
    assert sum(slots for job, slots in held(core).items() if job.startswith("a")) == 3
    assert held(core)["b1"] == 3
    waits = next(job for job in core.jobs if not core.holding(job))
    assert "jobs of ann have at most 3 slots" in core.reason(waits).text
    settle(core)
    assert core.usage("default")["ann"].slots == 3


def test_a_job_that_needs_more_than_the_quota_is_refused():
    core = core_of(user_slots=3)
    with pytest.raises(Unprocessable, match=r"a user has at most 3 of 8 there \(user_slots\)"):
        core.fits("default", 4)
    core.fits("default", 3)


def test_what_users_use_is_counted():
    core = core_of(user_running=1)
    arrive(core, "a1", most=2)
    arrive(core, "a2", most=2)
    arrive(core, "b1", "bob", most=3)
    found = core.usage("default")
    assert [(each.running, each.waiting, each.slots) for each in (found["ann"], found["bob"])] == [(1, 1, 2), (1, 0, 3)]


QUOTAS = ({}, {"user_running": 1}, {"max_running": 3, "user_running": 2}, {"user_slots": 2}, {"max_running": 1})


@pytest.mark.parametrize("seed", range(4))
def test_many_random_events_under_quotas(seed):
    """Every quota holds after each event, a replay and a restored core agree, and all can run when quotas go."""
    rng = random.Random(seed)
    core, played = Core(), []

    def apply(event, now):
        core.apply(event, now)
        played.append((event, now))
        check(core)

    for number in range(EVENTS):
        now, dice = float(number), rng.random()
        if dice < 0.02:
            groups = [
                InstanceGroup(
                    name=name,
                    policy=rng.choice(("fairshare", "fairshare", "priority", "fifo")),
                    preemption=rng.random() < 0.8,
                    **rng.choice(QUOTAS),
                )
                for name in ("default", "b")
            ]
            event = PlanChanged(Plan(instance_groups=tuple(groups)))
        elif dice < 0.05:
            event = TimePassed()
        elif dice < 0.2 and len(core.jobs) < 10:
            unit, group = rng.choice((1, 1, 1, 2)), rng.choice([each.name for each in core.plan.leaves()])
            rigid = rng.random() < 0.1
            event = JobArrived(f"k{number}", 5000, 4, group, rng.choice(("ann", "bob")), unit, unit, rigid=rigid)
        elif dice < 0.23 and core.jobs:
            group = rng.choice([each.name for each in core.plan.leaves()])
            event = JobChanged(rng.choice(core.jobs), JobPatch(instance_group=group))
        else:
            event = some_event(core, rng, number, 10, 8)
        try:
            apply(event, now)
        except EdtError:  # refused: it left the core as it was
            check(core)
        if number % 499 == 0:
            restored = Core.restored(core.state())
            assert restored.digest() == core.digest()
            check(restored)
    assert replayed(played).digest() == core.digest()
    leaves = [group.name for group in core.plan.leaves()]
    apply(PlanChanged(Plan(instance_groups=tuple(InstanceGroup(name=name) for name in leaves))), float(EVENTS))
    assert not any(core._jobs[job].queued for job in core.jobs)
