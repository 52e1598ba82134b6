"""The scheduler's guarantees over random histories: a short shrinking one by hypothesis, a long one by seed.

The long ones have EDT_CORE_EVENTS events, 6 000 by default; `make core-events` plays a million.
"""

from __future__ import annotations

import copy
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.job import JobPatch
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import (
    JobApart,
    JobArrived,
    JobBudget,
    JobChanged,
    JobDemand,
    JobGone,
    JobHeld,
    JobResumed,
    JobSuspended,
    PlanChanged,
    SlotReleased,
    SlotsChanged,
    TimePassed,
    from_data,
    kind_of,
    to_data,
)
from edt_server.core.instructions import Grant, Revoke
from tests.server.core.invariants import check, replayed

EVENTS = int(os.environ.get("EDT_CORE_EVENTS", "6000"))
PRIORITIES = (1, 1000, 2000, 5000, 5000, 5000, 10000, 10**9)


def some_event(core: Core, rng: random.Random, number: int, most_jobs: int, most_slots: int):
    """A random event that the core must accept in its present state."""
    leaving = [(job, slot) for job in core.jobs for slot in core.leaving(job)]
    if leaving and rng.random() < 0.6:
        return SlotReleased(*rng.choice(leaving))
    choice = rng.random()
    if not core.jobs or (choice < 0.25 and len(core.jobs) < most_jobs):
        return JobArrived(f"j{number}", rng.choice(PRIORITIES), rng.randint(1, most_slots + 2), "default")
    job = rng.choice(core.jobs)
    if choice < 0.40:
        return JobGone(job)
    if choice < 0.65:
        return JobDemand(job, rng.choice((0, 1, 2, 4, 8, 100)))
    if choice < 0.67:
        return (JobResumed if core.suspended(job) else JobSuspended)(job)
    if choice < 0.70:
        budget = core.budget(job)
        if budget is None or rng.random() < 0.5:
            return JobBudget(job, rng.choice((None, 1, 3, 9)))
        return JobHeld(job, rng.randint(1, 12), 27)
    if choice < 0.77:
        return JobChanged(job, JobPatch(priority=rng.choice(PRIORITIES)))
    if choice < 0.85:
        return JobChanged(job, JobPatch(max_workers=rng.randint(1, most_slots + 2)))
    if choice < 0.95:
        there = rng.sample(range(most_slots + 4), rng.randint(0, most_slots))
        return SlotsChanged(tuple(Slot(id=slot, host="h") for slot in there))
    held = [(name, slot) for name in core.jobs for slot in core.holding(name)]
    return SlotReleased(*rng.choice(held)) if held else JobDemand(job, 3)


def targets(core: Core) -> dict[str, int]:
    return {job: core.entitled(job) for job in core.jobs}


def held(core: Core) -> dict[str, tuple[int, ...]]:
    return {job: core.holding(job) for job in core.jobs}


def claims(core: Core) -> dict[str, tuple[int, int]]:
    return {job: (core.asked(job), core._jobs[job].priority) for job in core.jobs}


def checked_step(core: Core, event, now: float) -> None:
    """Apply the event and hold everything that was promised against what happened."""
    before, slots_before, targets_before, claims_before = held(core), len(core.slots), targets(core), claims(core)
    free_before = slots_before - sum(targets_before.values())
    instructions = core.apply(event, now)
    check(core)
    after = targets(core)
    _only_what_is_needed(core, event, before, instructions)
    _no_wrong_way(core, event, slots_before, targets_before, claims_before, free_before, after)


def _only_what_is_needed(core, event, before, instructions):
    """Every revoked slot was above the entitlement or is gone, and nothing else moved."""
    exist = {slot.id for slot in core.slots}
    revoked = [(each.job, each.slot) for each in instructions if isinstance(each, Revoke)]
    granted = [(each.job, each.slot) for each in instructions if isinstance(each, Grant)]
    kinds = [type(each) for each in instructions]
    assert kinds == sorted(kinds, key=lambda kind: kind is Grant), "revocations come before grants"
    for job in core.jobs:
        kept = [slot for slot in before.get(job, ()) if slot in exist]
        if isinstance(event, SlotReleased) and event.job == job and event.slot in kept:
            kept.remove(event.slot)
        lost = set(before.get(job, ())) - exist
        target = core.entitled(job)
        mine = [slot for name, slot in revoked if name == job]
        assert set(mine) == lost | set(kept[target:]), "exactly the surplus and what is gone, newest grants first"
        assert core.holding(job)[: len(kept[:target])] == tuple(kept[:target]), "kept slots are not exchanged"
    new_slots = [slot for _, slot in granted]
    assert new_slots == sorted(new_slots)
    assert not set(new_slots) & set(core.free())


def _no_wrong_way(core, event, slots_before, before, claims_before, free_before, after):
    """Who is not concerned never grows when others come, never shrinks when others go, and the fewest slots move."""
    others = {job for job in before if job in after and job != getattr(event, "job", None)}
    grew = {job for job in others if after[job] > before[job]}
    shrank = {job for job in others if after[job] < before[job]}
    lost = sum(before[job] - after[job] for job in shrank)
    match event:
        case SlotReleased():
            assert not grew | shrank
        case TimePassed():
            assert not shrank or 0 in before.values(), "somebody made room for nobody"
            assert sum(after.values()) == sum(before.values())
        case JobGone():
            assert not shrank
        case SlotsChanged():
            assert not (shrank if len(core.slots) >= slots_before else grew)
        case JobArrived() | JobDemand() | JobChanged() | JobSuspended() | JobResumed() | JobBudget() | JobHeld():
            job = event.job
            mine, was = after[job], before.get(job, 0)
            assert not (grew and shrank)
            asked, priority = claims_before.get(job, (0, 0))
            up = core.asked(job) >= asked and core._jobs[job].priority >= priority
            down = core.asked(job) <= asked and core._jobs[job].priority <= priority
            assert not (grew and up), "somebody grew when another came"
            assert not (shrank and down), "somebody shrank when another went"
            assert lost == max(0, mine - was - free_before), "more moved than the job got"


def drain(core: Core, now: float) -> None:
    """Let every leaver leave: it must come to rest, with everybody at the entitlement."""
    for job in core.jobs:
        for slot in core.leaving(job):
            for instruction in core.apply(SlotReleased(job, slot), now):
                assert isinstance(instruction, Grant), "a release takes nothing from anybody"
            check(core)
    assert core.settled()
    assert all(len(core.holding(job)) == core.entitled(job) for job in core.jobs)


def test_many_random_events_in_one_queue():
    """Nobody moves the wrong way, the fewest slots move, what was worked out bit by bit is what a new start gives."""
    rng = random.Random(20240611)
    core, history = Core(), []
    for number in range(EVENTS):
        most_jobs, most_slots = (12, 8) if number % 2000 < 1600 else (6, 40)
        wake = core.next_wake(float(number))
        due = wake is not None and wake <= number
        event = TimePassed() if due else some_event(core, rng, number, most_jobs, most_slots)
        history.append((event, float(number)))
        checked_step(core, *history[-1])
        if number % 499 == 0:
            assert targets(Core.restored(core.state())) == targets(core)
        if number in (499, 4_999, 11_999):
            rows = [(kind_of(event), to_data(event), now) for event, now in history]
            again = replayed((from_data(kind, data), now) for kind, data, now in rows)
            assert again.digest() == core.digest()
            assert [again.reason(job) for job in core.jobs] == [core.reason(job) for job in core.jobs]
            drain(again, now=float(number))
    for job in core.jobs:
        reason = core.reason(job)
        assert (reason is None) == (len(core.holding(job)) >= core.asked(job) and not core.suspended(job))


HOSTS = ("a", "b", "c")


def some_plan(rng: random.Random, keep: set[str]) -> Plan:
    """A random plan that has a place for the jobs of these groups."""
    resources = (ResourceGroup(name="default"), ResourceGroup(name="far", hosts=tuple(rng.sample(HOSTS, 1))))
    names = sorted(keep | {"default", *rng.sample(("g1", "g2", "g3", "g4"), rng.randint(0, 3))})
    tops = ["top"] if rng.random() < 0.5 else []
    groups = [InstanceGroup(name=name, share=rng.randint(1, 3), own=rng.choice((0, 0, 2))) for name in tops]
    for name in names:
        far = name in ("g3", "g4")
        groups.append(
            InstanceGroup(
                name=name,
                resource_group="far" if far else "default",
                parent=rng.choice(["", *tops]) if not far else "",
                policy=rng.choice(("fairshare", "fairshare", "fairshare", "priority", "fifo")),
                preemption=rng.random() < 0.8,
                share=rng.randint(1, 4),
                own=rng.choice((0, 0, 1, 3)),
                lend=rng.choice((None, None, 0, 1)),
                borrow=rng.choice((None, None, 2)),
                user_shares=rng.choice((None, None, {"ana": 2, "*": 1})),
                quantum=rng.choice((5.0, 20.0)),
                pending_timeout=rng.choice((None, None, 50.0)),
            )
        )
    if tops and not any(group.parent for group in groups):
        groups = groups[1:]
    return Plan(instance_groups=tuple(groups), resource_groups=resources).check()


def least_of(core, name):
    """Slots that the job needs at once."""
    job = core._jobs[name]
    return job.claim(core.group_of(name)).floor


def test_many_random_events_under_random_plans():
    """Every invariant holds whatever is set and changed; at most one reconfiguration of a job an event."""
    rng = random.Random(77)
    core, history = Core(), []
    for number in range(EVENTS):
        now = float(number)
        wake = core.next_wake(now)
        choice = rng.random()
        leaves = [group.name for group in core.plan.leaves()]
        if wake is not None and wake <= now:
            event = TimePassed()
        elif choice < 0.02:
            event = PlanChanged(some_plan(rng, {core._jobs[job].group for job in core.jobs}))
        elif choice < 0.06:
            numbers = rng.sample(range(14), rng.randint(0, 12))
            event = SlotsChanged(tuple(Slot(id=slot, host=HOSTS[slot % 3]) for slot in numbers))
        elif choice < 0.10 and core.jobs:
            event = JobChanged(rng.choice(core.jobs), JobPatch(instance_group=rng.choice(leaves)))
        elif choice < 0.13 and core.jobs:
            event = JobApart(
                rng.choice(core.jobs), tuple(rng.sample(HOSTS, rng.choice((0, 0, 1, 2)))), "They are apart."
            )
        elif choice < 0.30 and len(core.jobs) < 12:
            unit = rng.choice((1, 1, 1, 2))
            least = rng.choice((1, 1, unit, 2 * unit))
            event = JobArrived(
                f"j{number}",
                rng.choice(PRIORITIES),
                unit * rng.randint(2, 6),
                rng.choice(leaves),
                owner=rng.choice(("ana", "bob")),
                min_workers=least,
                slots_per_unit=unit,
            )
        else:
            event = some_event(core, rng, number, 0, 8)
            if isinstance(event, SlotsChanged | JobArrived) or (
                isinstance(event, JobChanged) and event.patch.max_workers is not None
            ):
                event = TimePassed()
        before = held(core)
        rows = (event, now)
        history.append(rows)
        instructions = core.apply(*rows)
        check(core)
        moved = {each.job for each in instructions if isinstance(each, Revoke)}
        granted = {each.job for each in instructions if isinstance(each, Grant)}
        if not isinstance(event, SlotsChanged | PlanChanged | JobChanged | JobApart):
            assert not moved & granted, "told to shrink and to grow at once"
        if isinstance(event, JobArrived | JobDemand | TimePassed):
            taken = moved - {getattr(event, "job", None)}
            # What holds less than it can run on does not run, and keeps nothing.
            running = {job for job in taken if len(before[job]) >= least_of(core, job)}
            assert all(core.group_of(job).preemption for job in running), "taken from where nothing is taken"
        for job in core.jobs:
            assert not set(core.holding(job)) - set(before.get(job, ())) or job in granted
        if number % 997 == 0:
            assert Core.restored(core.state()).digest() == core.digest()
            for job in core.jobs:
                core.reason(job, now=now)
        if number == 4_999:
            assert replayed(history).digest() == core.digest()


QUEUES = Plan(
    instance_groups=(
        InstanceGroup(name="default", quantum=10.0),
        InstanceGroup(name="fifo", policy="fifo", quantum=10.0),
        InstanceGroup(name="priority", policy="priority", quantum=10.0, user_shares={"*": 1}),
        InstanceGroup(name="owner", policy="fifo", quantum=10.0, own=1),
        InstanceGroup(name="limited", policy="priority", quantum=10.0, borrow=1),
    )
)


@pytest.mark.parametrize(
    ("plan", "slots"),
    [(Plan(instance_groups=(InstanceGroup(name="default", quantum=10.0),)), 4), (QUEUES, 3)],
    ids=("jobs", "queues"),
)
def test_nobody_starves_over_a_long_history(plan, slots):
    """However jobs come and go, a job that shares, and a queue with a strict policy, runs again within a few rounds."""
    rng = random.Random(5)
    core = Core(plan)
    core.apply(SlotsChanged(tuple(Slot(id=slot, host="h") for slot in range(slots))), 0.0)
    groups = [group.name for group in core.plan.leaves()]
    idle: dict[tuple[str, str], float] = {}
    for number in range(EVENTS // 4):
        now = float(number)
        wake = core.next_wake(now)
        event = TimePassed()
        if wake is None or wake > now:
            if len(core.jobs) < 12 and rng.random() < 0.3:
                owner = rng.choice(("ana", "bob"))
                event = JobArrived(f"j{number}", rng.choice((4000, 5000, 6000)), 8, rng.choice(groups), owner=owner)
            elif core.jobs and rng.random() < 0.05:
                event = JobGone(rng.choice(core.jobs))
        queue = [event]
        while queue:
            made = core.apply(queue.pop(), now)
            queue += [SlotReleased(each.job, each.slot) for each in made if isinstance(each, Revoke)]
        running: dict[tuple[str, str], bool] = {}
        for job in core.jobs:
            group = core.group_of(job)
            who = (job, "") if group.policy == "fairshare" else (group.name, core._jobs[job].owner)
            if group.user_shares is None and group.policy != "fairshare":
                who = (group.name, "")
            running[who] = running.get(who, False) or bool(core.holding(job))
        idle = {who: idle.get(who, now) for who, runs in running.items() if not runs}
        assert all(now - since < 15 * 10.0 for since in idle.values()), idle


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 10), st.integers(1, 60))
def test_short_histories(seed, most_jobs, most_slots, length):
    rng, core = random.Random(seed), Core()
    checked_step(core, SlotsChanged(tuple(Slot(id=n, host="h") for n in range(most_slots))), 0.0)
    for number in range(length):
        checked_step(core, some_event(core, rng, number, most_jobs, most_slots), float(number))
        for job in core.jobs:
            core.reason(job)  # every state can be explained
    drain(core, 99.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(2, 30))
def test_a_copy_goes_on_as_the_original_would(seed, slots, length):
    """That is what a what-if asks, with more jobs than slots too."""
    rng, core = random.Random(seed), Core()
    core.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(slots))), 0.0)
    for number in range(length):
        core.apply(some_event(core, rng, number, 4 * slots, slots), float(number))
    copied = copy.deepcopy(core)
    for number in range(length, length + 5):
        event = some_event(core, rng, number, 4 * slots, slots)
        assert copied.apply(event, float(number)) == core.apply(event, float(number))
        assert [copied.reason(job) for job in copied.jobs] == [core.reason(job) for job in core.jobs]
    assert copied.digest() == core.digest()


settings_of_a_job = st.tuples(st.sampled_from(PRIORITIES), st.integers(1, 10), st.integers(0, 10))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(settings_of_a_job, min_size=1, max_size=6),
    st.integers(6, 12),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_the_same_jobs_on_the_same_slots_get_the_same_whatever_happened_on_the_way(jobs, slots, shuffler, data):
    """With a slot for everybody the result is a function of who is there, in order of arrival, not of the path."""

    def begin() -> Core:
        core = Core()
        core.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(slots))), 0.0)
        return core

    straight = begin()
    for n, (priority, most, demand) in enumerate(jobs):
        straight.apply(JobArrived(f"j{n}", priority, most, "default"), 1.0)
        straight.apply(JobDemand(f"j{n}", demand), 1.0)
    drain(straight, 2.0)

    detour = begin()
    for n in range(len(jobs)):
        detour.apply(JobArrived(f"j{n}", 7, 3, "default"), 1.0)
    rest = [
        JobChanged(f"j{n}", JobPatch(priority=priority, max_workers=most)) for n, (priority, most, _) in enumerate(jobs)
    ]
    rest += [JobDemand(f"j{n}", demand) for n, (_, _, demand) in enumerate(jobs)]
    shuffler.shuffle(rest)
    guest = data.draw(st.integers(0, len(rest)))
    for n, event in enumerate(rest):
        if n == guest:
            detour.apply(JobArrived("guest", 10**9, 99, "default"), 1.5)
            detour.apply(JobDemand("guest", 99), 1.5)
        detour.apply(event, 2.0)
    if "guest" in detour.jobs:
        detour.apply(JobGone("guest"), 3.0)
    drain(detour, 4.0)
    assert targets(detour) == targets(straight)
    assert {job: len(slots) for job, slots in held(detour).items()} == targets(straight)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_oscillates(seed):
    """After any history, events that change nothing cause nothing."""
    rng, core = random.Random(seed), Core()
    for number in range(300):
        core.apply(some_event(core, rng, number, 8, 8), float(number))
    drain(core, 300.0)
    digest = core.digest()
    assert core.apply(SlotsChanged(core.slots), 301.0) == []
    for job in core.jobs:
        assert core.apply(JobChanged(job, JobPatch()), 301.0) == []
        assert core.apply(JobDemand(job, core._jobs[job].demand), 301.0) == []
        assert core.apply(JobBudget(job, core.budget(job)), 301.0) == []
        if core.held(job):
            assert core.apply(JobHeld(job, *core.held(job)), 301.0) == []
        else:
            assert core.apply((JobSuspended if core.suspended(job) else JobResumed)(job), 301.0) == []
    assert core.digest() == digest
