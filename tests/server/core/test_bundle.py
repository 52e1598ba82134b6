"""The trials of a search claim slots as one job: to everybody else it makes no difference how many they are."""

from __future__ import annotations

import json
import random

import pytest

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
from tests.server.core.invariants import check

SEARCHES = ("s1", "s2", "s3")
GROUPS = ("default", "other", "fifo")
PLAN = Plan(
    instance_groups=(
        InstanceGroup(name="default"),
        InstanceGroup(name="other", own=2, quantum=5.0),
        InstanceGroup(name="fifo", policy="fifo"),
        InstanceGroup(name="lasting", preemption=False),
    )
)


def slots(number: int) -> SlotsChanged:
    return SlotsChanged(tuple(Slot(id=each, host="h") for each in range(number)))


class Twins:
    """One core with the trials of searches, and one with a single job in the place of each search."""

    def __init__(self, number: int, plan: Plan = PLAN) -> None:
        self.trials, self.whole, self.now = Core(plan), Core(plan), 0.0
        self.both(slots(number))

    def both(self, event) -> None:
        self._apply(self.trials, event)
        self._apply(self.whole, event)

    def arrive(self, job: str, search: str = "", group: str = "default", most: int = 4, priority: int = 5000) -> None:
        asked = JobArrived(job, priority, most, group, owner="ann", demand=most, search=search)
        self._apply(self.trials, asked)
        if not search:
            self._apply(self.whole, asked)
        elif search not in self.whole.jobs:
            self._apply(self.whole, JobArrived(search, priority, 1_000_000, group, owner="ann", demand=most))
        self.follow(search)

    def trial(self, event) -> None:
        search = self.trials._job(event.job).search
        self._apply(self.trials, event)
        self.follow(search)

    def follow(self, search: str) -> None:
        """Let the single job ask for what the trials ask for."""
        if search:
            mine = [job for job in self.trials._jobs.values() if job.search == search]
            asked = sum(job.asked for job in mine)
            self._apply(self.whole, JobDemand(search, asked) if mine else JobGone(search))

    def _apply(self, core: Core, event) -> None:
        core.apply(event, self.now)
        while leaving := [(job, slot) for job in core.jobs for slot in core.leaving(job)]:
            for job, slot in leaving:
                core.apply(SlotReleased(job, slot), self.now)

    def of(self, search: str) -> dict[str, int]:
        return {job: self.trials.entitled(job) for job in self.trials.jobs if self.trials._job(job).search == search}

    def compare(self) -> None:
        core = self.trials
        check(core)
        shares = {job: core.entitled(job) for job in core.jobs if not core._job(job).search}
        shares |= {search: sum(self.of(search).values()) for search in SEARCHES if self.of(search)}
        assert shares == {job: self.whole.entitled(job) for job in self.whole.jobs}
        for search in SEARCHES:
            jobs = [core._job(job) for job in self.of(search)]
            asking = sorted((job for job in jobs if job.asked), key=lambda job: job.arrival)
            running = [job for job in asking if job.target]
            kept = core._group(jobs[0]).preemption is False if jobs else False
            assert kept or running == asking[: len(running)], "the first to arrive run"
            uncapped = [job.target for job in running if job.target < job.asked]
            assert kept or not uncapped or max(job.target for job in running) - min(uncapped) <= 1, "in equal parts"
        again = Core.restored(json.loads(json.dumps(core.state())))
        assert again.digest() == core.digest()


def test_two_searches_and_a_job_of_equal_priority_share_eight_slots_as_three():
    twins = Twins(8)
    for number in range(6):
        twins.arrive(f"a{number}", "s1")
        twins.arrive(f"b{number}", "s2")
    twins.arrive("job", most=8)
    assert (sum(twins.of("s1").values()), sum(twins.of("s2").values())) == (3, 3)
    assert twins.trials.entitled("job") == 2
    assert twins.of("s1") == {"a0": 1, "a1": 1, "a2": 1, "a3": 0, "a4": 0, "a5": 0}
    twins.compare()


def test_a_search_of_twice_the_priority_gets_four_two_and_two():
    twins = Twins(8)
    for number in range(6):
        twins.arrive(f"a{number}", "s1")
        twins.arrive(f"b{number}", "s2")
    twins.arrive("job", most=8)
    twins.trials.apply(JobChanged("a3", JobPatch(priority=10000)), 1.0)
    twins.whole.apply(JobChanged("s1", JobPatch(priority=10000)), 1.0)
    assert sum(twins.of("s1").values()) == 4
    assert sum(twins.of("s2").values()) == twins.trials.entitled("job") == 2


def test_trials_grow_when_there_are_fewer_of_them_than_slots():
    twins = Twins(8)
    twins.arrive("a0", "s1")
    twins.arrive("a1", "s1", most=3)
    assert twins.of("s1") == {"a0": 4, "a1": 3}
    twins.arrive("a2", "s1")
    assert twins.of("s1") == {"a0": 3, "a1": 3, "a2": 2}


def test_why_a_trial_waits_is_said_of_its_search():
    twins = Twins(4, Plan())
    for number in range(3):
        twins.arrive(f"a{number}", "s1")
    twins.arrive("job")
    names = {"s1": "digits", "job": "other"}
    waits = twins.trials.reason("a2", lambda each: names.get(each, each))
    assert waits.text == (
        "It waits: its search has 2 slots, and 2 earlier trials have them. Of the search as a whole: It has 2 of 4 "
        "slots: other has the same priority (5000) and gets 2. More when other ends."
    )
    assert (waits.held, waits.entitled, waits.asked) == (0, 0, 4)
    runs = twins.trials.reason("a0")
    assert runs.text.startswith("It has 1: its search has 2 slots for 2 trials. Of the search as a whole: It has 2 of")
    beaten = twins.trials.reason("job", lambda each: names.get(each, each))
    assert beaten.text.startswith("It has 2 of 4 slots: digits has the same priority (5000)")
    assert "s1" in json.dumps(beaten.numbers)
    assert "\\n" not in json.dumps([waits.numbers, beaten.numbers])
    twins.trial(JobSuspended("a0"))
    assert twins.trials.reason("a0").code == "suspended"


def test_a_trial_does_not_give_up_while_its_search_has_slots():
    twins = Twins(1, Plan(instance_groups=(InstanceGroup(name="default", pending_timeout=10.0, quantum=60.0),)))
    twins.arrive("a0", "s1")
    twins.arrive("a1", "s1")
    twins.arrive("job")
    given_up = twins.trials.apply(TimePassed(), 11.0)
    assert [each.job for each in given_up] == ["job"]


def some_event(twins: Twins, rng: random.Random, number: int, groups: tuple[str, ...]):
    core = twins.trials
    jobs = list(core.jobs)
    choice = rng.random()
    if not jobs or (choice < 0.35 and len(jobs) < 24):
        search = rng.choice((*SEARCHES, ""))
        where = {core._job(job).search: core._job(job).group for job in jobs}
        group = where.get(search, rng.choice(groups)) if search else rng.choice(groups)
        # The priority of a search is that of its first job here, since only a change moves it.
        return twins.arrive(f"j{number}", search, group, rng.randint(1, 4), rng.choice((1000, 5000, 10000)))
    job = rng.choice(jobs)
    if choice < 0.5:
        return twins.both(slots(rng.randint(0, 16)))
    act = twins.trial if core._job(job).search else twins.both
    if choice < 0.6:
        return act(JobGone(job))
    if choice < 0.7:
        return act(JobSuspended(job))
    if choice < 0.8:
        return act(JobResumed(job))
    if choice < 0.9:
        return act(JobDemand(job, rng.randint(0, 5)))
    return twins.both(TimePassed())


@pytest.mark.parametrize("seed", range(8))
def test_to_everybody_else_a_search_is_one_job(seed):
    twins, rng = Twins(6), random.Random(seed)
    for number in range(250):
        twins.now = float(number)
        some_event(twins, rng, number, GROUPS)
        twins.compare()


@pytest.mark.parametrize("seed", range(4))
def test_without_preemption_every_invariant_holds(seed):
    # A single job keeps a slot that a trial gives back, so that there is nothing to compare with.
    twins, rng = Twins(6), random.Random(seed)
    for number in range(250):
        twins.now = float(number)
        some_event(twins, rng, number, (*GROUPS, "lasting"))
        check(twins.trials)


def test_bundles_follow_their_jobs_and_the_plan():
    core = Core(PLAN)
    core.apply(slots(6), 0.0)
    for number in range(3):
        core.apply(JobArrived(f"a{number}", 5000, 4, "default", owner="ann", demand=4, search="s1"), 0.0)
    core.apply(JobChanged("a1", JobPatch(instance_group="other")), 1.0)
    assert len(core._bundles) == 2
    core.follow([(PlanChanged(Plan()), 2.0)])  # only the default group is left; apply() would refuse it
    check(core)
    assert [bundle.claimant.group for bundle in core._bundles.values()] == ["default"]
    assert sorted(core._bundle_of) == ["a0", "a1", "a2"]
    assert sum(core.entitled(job) for job in core.jobs) == 6
    for job in ("a0", "a1", "a2"):
        core.apply(JobGone(job), 3.0)
    check(core)
    assert not core._bundles
    assert not core._bundle_of
