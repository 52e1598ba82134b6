"""Jobs that are not elastic: all their slots or none, and nobody takes them while they run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.job import JobPatch
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core import snapshot
from edt_server.core.core import Core
from edt_server.core.events import (
    JobArrived,
    JobChanged,
    JobDemand,
    JobGone,
    JobResumed,
    JobSuspended,
    SlotReleased,
    SlotsChanged,
    TimePassed,
)
from edt_server.core.instructions import Revoke
from tests.server.core.conftest import Play
from tests.server.core.invariants import check, replayed

QUICK = Plan(instance_groups=(InstanceGroup(name="default", quantum=5.0),))


def rigid(play, job: str, size: int, **more):
    return play.arrive(job, max_workers=size, min_workers=size, rigid=True, **more)


def left(play) -> None:
    """Whoever has to leave a slot leaves it."""
    while leaving := [(job, slot) for job in play.core.jobs for slot in play.core.leaving(job)]:
        for job, slot in leaving:
            play.step(SlotReleased(job, slot))


@pytest.fixture
def play():
    return Play(4, QUICK)


def test_an_elastic_job_makes_room_for_all_of_it(play):
    play.run("elastic")
    rigid(play, "gang", 3)
    assert play.core.holding("gang") == ()
    left(play)
    assert (len(play.core.holding("elastic")), len(play.core.holding("gang"))) == (1, 3)


def test_it_keeps_its_slots_whoever_comes_and_however_long_they_wait(play):
    rigid(play, "gang", 4, priority=1)
    for number in range(5):
        play.run(f"late-{number}", priority=10**6)
    for _ in range(10):
        play.wait(60.0)
        left(play)
        assert len(play.core.holding("gang")) == 4
    play.step(JobGone("gang"))
    assert len(play.core.holding("late-0")) == 1


def test_turns_go_on_among_the_others(play):
    rigid(play, "gang", 3)
    for job in ("a", "b"):
        play.run(job)
    had = set()
    for _ in range(4):
        had |= {job for job in ("a", "b") if play.core.holding(job)}
        play.wait(10.0)
        left(play)
    assert had == {"a", "b"}
    assert len(play.core.holding("gang")) == 3


def test_suspended_it_gives_all_of_them_and_waits_for_all(play):
    rigid(play, "gang", 3)
    play.step(JobSuspended("gang"))
    left(play)
    play.run("elastic", max_workers=3)
    play.step(JobResumed("gang"))
    assert play.core.holding("gang") == ()
    left(play)
    assert len(play.core.holding("gang")) == 3


def test_without_one_of_its_slots_it_keeps_none_that_another_needs(play):
    rigid(play, "gang", 3)
    play.run("elastic")
    play.slots(0, 3)
    left(play)
    assert play.core.holding("gang") == ()
    assert len(play.core.holding("elastic")) == 2


def test_a_snapshot_and_a_replay_know_it(play):
    rigid(play, "gang", 3)
    play.run("elastic")
    again = snapshot.load(snapshot.VERSION, snapshot.dump(play.core))
    assert again is not None
    assert again.digest() == play.core.digest() == replayed(play.history, QUICK).digest()
    again.apply(JobArrived("late", 10**6, 4, "default"), play.now)
    assert len(again.holding("gang")) == 3


# Queues of every policy beside each other.
QUEUES = Plan(
    instance_groups=tuple(
        InstanceGroup(name=policy, policy=policy, quantum=5.0) for policy in ("fairshare", "fifo", "priority")
    )
)
STEP = st.tuples(
    st.sampled_from(("rigid", "elastic", "gone", "suspend", "resume", "wait", "priority", "leave")),
    st.integers(0, 7),
    st.integers(1, 5),
)


@settings(deadline=None)
@given(st.lists(STEP, max_size=40))
def test_nobody_ever_takes_a_slot_from_one_that_runs(steps: list[tuple[str, int, int]]) -> None:
    core, now = Core(QUEUES), 0.0
    core.apply(SlotsChanged(tuple(Slot(id=number, host="h") for number in range(6))), now)
    gangs: dict[str, int] = {}
    for number, (kind, which, size) in enumerate(steps):
        now += 1.0
        there = sorted(core.jobs)
        job = there[which % len(there)] if there else ""
        running = {name for name, need in gangs.items() if name in core.jobs and len(core.holding(name)) == need}
        events: list[object] = []
        group = ("fairshare", "fifo", "priority")[which % 3]
        match kind:
            case "rigid":
                gangs[f"j{number}"] = size
                events = [JobArrived(f"j{number}", 5000, size, group, min_workers=size, rigid=True)]
            case "elastic":
                events = [JobArrived(f"j{number}", 5000, 6, group), JobDemand(f"j{number}", 6)]
            case "wait":
                now += 20.0
                events = [TimePassed()]
            case "leave":
                events = [SlotReleased(name, slot) for name in there for slot in core.leaving(name)]
            case "gone" if job:
                events, running = [JobGone(job)], running - {job}
            case "suspend" if job and not core.suspended(job):
                events, running = [JobSuspended(job)], running - {job}
            case "resume" if job and core.suspended(job):
                events = [JobResumed(job)]
            case "priority" if job:
                events = [JobChanged(job, JobPatch(priority=10 ** (size + 1)))]
        for event in events:
            told = core.apply(event, now)  # type: ignore[arg-type]
            check(core)
            assert not {each.job for each in told if isinstance(each, Revoke)} & running


def test_an_elastic_job_whose_size_is_held_neither_gives_nor_gets_slots(play):
    play.arrive("script", max_workers=3, demand=2)
    play.step(JobDemand("script", 2, "It restarts from nothing."))
    for number in range(3):
        play.run(f"late-{number}", priority=10**6)
    play.wait(60.0)
    left(play)
    assert len(play.core.holding("script")) == 2
    for number in range(3):
        play.step(JobGone(f"late-{number}"))
    assert len(play.core.holding("script")) == 2
    assert play.core.reason("script").text == "It restarts from nothing."
    # A change on request is carried out, and the reason stays until the job says otherwise.
    play.step(JobChanged("script", JobPatch(max_workers=3)))
    assert len(play.core.holding("script")) == 3
    assert play.core.reason("script").code == "restarts"
    play.step(JobDemand("script", 8))
    play.run("late", priority=10**6)
    left(play)
    assert len(play.core.holding("script")) < 3
    assert play.core.reason("script").code != "restarts"
