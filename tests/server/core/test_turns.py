"""More jobs than slots: who runs when, that nobody waits for ever, and whose patience ends."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import JobArrived, JobDemand, JobGone, PlanChanged, SlotReleased, SlotsChanged, TimePassed
from edt_server.core.instructions import GiveUp, Grant, Revoke
from tests.server.core.invariants import check, replayed

QUANTUM = 10.0
TURNS = Plan(instance_groups=(InstanceGroup(name="default", quantum=QUANTUM),))


class Clockwork:
    """Plays a core in simulated time: every slot that is revoked is left at once, time passes as the core asks."""

    def __init__(self, slots: int, plan: Plan = TURNS) -> None:
        self.core = Core(plan)
        self.now = 0.0
        self.ran: dict[str, float] = {}
        self.waited: dict[str, float] = {}  # the longest
        self._idle_since: dict[str, float] = {}
        self.history: list[tuple[object, float]] = []
        self.apply(SlotsChanged(tuple(Slot(id=number, host="h") for number in range(slots))))

    def apply(self, event):
        instructions = []
        queue = [event]
        while queue:
            self.history.append((queue[0], self.now))
            made = self.core.apply(queue.pop(0), self.now)
            check(self.core)
            instructions += made
            queue += [SlotReleased(each.job, each.slot) for each in made if isinstance(each, Revoke)]
        for job in self.core.jobs:
            if self.core.holding(job) or not self.core.asked(job):
                self._idle_since.pop(job, None)
            else:
                self._idle_since.setdefault(job, self.now)
        return instructions

    def arrive(self, job: str, priority: int = 5000, group: str = "default", **more):
        self.apply(JobArrived(job, priority, 100, group, **more))
        return self.apply(JobDemand(job, 100))

    def play(self, until: float) -> None:
        while True:
            wake = self.core.next_wake(self.now)
            then = until if wake is None else min(wake, until)
            for job in self.core.jobs:
                if self.core.holding(job):
                    self.ran[job] = self.ran.get(job, 0.0) + then - self.now
            self.now = then
            for job, since in self._idle_since.items():
                self.waited[job] = max(self.waited.get(job, 0.0), self.now - since)
            if then == until:
                return
            self.apply(TimePassed())

    def running(self) -> set[str]:
        return {job for job in self.core.jobs if self.core.holding(job)}


def test_three_jobs_take_turns_on_two_slots():
    play = Clockwork(2)
    for job in "abc":
        play.arrive(job)
    assert play.running() == {"a", "b"}
    seen = []
    for _ in range(6):
        play.play(play.now + QUANTUM)
        play.play(play.now + 0.001)
        seen.append("".join(sorted(play.running())))
    assert (
        seen == ["ac", "ab", "bc", "ac", "ab", "bc"] or seen == ["bc", "ab", "ac"] * 2 or seen == ["ac", "bc", "ab"] * 2
    )


def test_nobody_is_asked_to_go_when_nobody_waits():
    play = Clockwork(2)
    play.arrive("a")
    play.arrive("b")
    assert play.core.next_wake(0.0) is None
    assert play.apply(TimePassed()) == []


def test_who_has_run_for_long_makes_room_for_a_newcomer_at_once_and_others_do_not():
    play = Clockwork(1)
    play.arrive("a")
    play.play(3.0)
    play.arrive("b")
    assert play.running() == {"a"}
    assert play.core.next_wake(play.now) == QUANTUM
    play.play(100.0)
    play.apply(JobGone("a"))
    play.play(200.0)
    play.arrive("c")
    assert play.core.next_wake(play.now) == 200.0
    play.play(200.001)
    assert play.running() == {"c"}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 14), st.integers(0, 2**32))
def test_with_equal_weights_nobody_waits_longer_than_the_rounds_it_takes(slots, jobs, seed):
    rng = random.Random(seed)
    play = Clockwork(slots)
    for number in range(jobs):
        play.arrive(f"j{number}")
        play.play(play.now + rng.choice((0.0, 1.0, 3.5, 12.0)))
    play.play(play.now + 3 * jobs * QUANTUM)  # what happened while the others still arrived is over
    play.waited.clear()
    play._idle_since = dict.fromkeys(play._idle_since, play.now)
    play.play(play.now + 4 * jobs * QUANTUM)
    assert max(play.waited.values(), default=0.0) <= (math.ceil(jobs / slots) - 1) * QUANTUM + 1e-6
    assert replayed(play.history, TURNS).digest() == play.core.digest()


@pytest.mark.parametrize("slots", [1, 3])
def test_service_follows_the_weights(slots):
    play = Clockwork(slots)
    for number, priority in enumerate((1000, 1000, 2000, 3000, 1000)):
        play.arrive(f"j{number}", priority)
    play.play(2400 * QUANTUM)
    if slots == 1:
        assert [round(play.ran[f"j{n}"] / QUANTUM / 300, 1) for n in range(5)] == [1.0, 1.0, 2.0, 3.0, 1.0]
    else:
        assert play.ran["j3"] >= play.ran["j2"] >= play.ran["j0"] > 0


def test_newcomers_without_end_starve_nobody():
    play = Clockwork(2)
    play.arrive("old", 1000)
    play.arrive("older", 1000)
    for number in range(200):
        play.arrive(f"n{number}", 5000)
        play.play(play.now + QUANTUM)
        if number > 1:
            play.apply(JobGone(f"n{number - 2}"))
    assert play.ran["old"] >= 5 * QUANTUM
    assert play.ran["older"] >= 5 * QUANTUM


def test_a_strict_queue_takes_no_turns():
    play = Clockwork(1, Plan(instance_groups=(InstanceGroup(name="default", policy="fifo", quantum=QUANTUM),)))
    play.arrive("a")
    play.arrive("b", 10**9)
    assert play.core.next_wake(0.0) is None
    play.play(1000.0)
    assert play.running() == {"a"}


def strict(*names: str, policy: str = "fifo", **settings) -> Plan:
    """A plan with a strict queue of each of these names, and one that is shared, "default"."""
    groups = [InstanceGroup(name=name, policy=policy, quantum=QUANTUM, **settings) for name in names]
    return Plan(instance_groups=(InstanceGroup(name="default", quantum=QUANTUM), *groups))


class TestStrictQueues:
    """Between queues turns are fair; within one the first comes first."""

    @pytest.mark.parametrize("policy", ["fifo", "priority"])
    def test_more_queues_than_slots_take_turns_and_only_the_first_of_each_runs(self, policy):
        play = Clockwork(2, strict("x", "y", "z", policy=policy))
        for name in "xyz":
            play.arrive(f"{name}1", group=name)
            play.arrive(f"{name}2", group=name)
        play.play(300 * QUANTUM)
        assert [round(play.ran[f"{name}1"] / QUANTUM / 200, 2) for name in "xyz"] == [1.0, 1.0, 1.0]
        assert not any(play.ran.get(f"{name}2") for name in "xyz")
        assert max(play.waited[f"{name}1"] for name in "xyz") <= QUANTUM

    def test_a_queue_beside_jobs_that_share_counts_as_one_of_them(self):
        play = Clockwork(1, strict("x"))
        play.arrive("x1", 10**9, group="x")
        play.arrive("x2", 10**9, group="x")
        for job in "ab":
            play.arrive(job)
        play.play(300 * QUANTUM)
        assert [round(play.ran[job] / QUANTUM / 100, 2) for job in ("x1", "a", "b")] == [1.0, 1.0, 1.0]

    def test_a_job_that_ends_leaves_its_turn_to_the_next_of_its_queue(self):
        play = Clockwork(1, strict("x", "y"))
        for job, name in (("x1", "x"), ("x2", "x"), ("y1", "y")):
            play.arrive(job, group=name)
        play.play(3.0)
        play.apply(JobGone("x1"))
        assert play.running() == {"x2"}
        play.play(QUANTUM + 1.0)
        assert play.running() == {"y1"}

    def test_who_keeps_what_it_has_is_not_interrupted(self):
        play = Clockwork(1, strict("x", "y", preemption=False))
        play.arrive("x1", group="x")
        play.arrive("x2", group="x")
        play.arrive("y1", group="y")
        play.play(20 * QUANTUM)
        assert play.running() == {"x1"}
        play.apply(JobGone("x1"))
        assert play.running() == {"y1"}, "the other queue is next"

    def test_users_of_a_queue_take_turns(self):
        play = Clockwork(1, strict("x", user_shares={"*": 1}))
        play.arrive("a1", group="x", owner="ana")
        play.arrive("b1", group="x", owner="bob")
        play.play(100 * QUANTUM)
        assert play.ran["a1"] == pytest.approx(play.ran["b1"], abs=QUANTUM)

    def test_an_owner_in_its_slot_takes_no_turns_and_newcomers_wait_no_longer_for_it(self):
        plan = Plan(
            instance_groups=(
                InstanceGroup(name="default", quantum=QUANTUM),
                InstanceGroup(name="owner", own=1, quantum=QUANTUM),
            )
        )
        play = Clockwork(2, plan)
        play.arrive("mine", group="owner", min_workers=1)
        for job in "abcd":
            play.arrive(job)
        play.play(200 * QUANTUM)  # in which the owner has four times what the others have
        play.arrive("late")
        play.play(play.now + 20 * QUANTUM)
        assert play.waited["late"] <= 6 * QUANTUM
        assert play.ran["mine"] == pytest.approx(220 * QUANTUM)

    def test_turns_go_on_when_the_plan_changes_or_the_core_is_restored(self):
        play = Clockwork(1, strict("x", "y"))
        play.arrive("x1", group="x")
        play.arrive("y1", group="y")
        play.play(2.0)
        play.apply(PlanChanged(strict("x", "y", "z")))
        assert play.core.next_wake(2.0) == QUANTUM
        again = Core.restored(play.core.state())
        assert again.digest() == play.core.digest()
        assert again.next_wake(2.0) == QUANTUM
        play.play(QUANTUM + 1.0)
        assert play.running() == {"y1"}
        play.apply(PlanChanged(strict("x", "y", policy="priority")))
        play.play(5 * QUANTUM)
        assert play.ran["x1"] == pytest.approx(play.ran["y1"], abs=QUANTUM)

    def test_why_it_waits(self, play):
        p = play(1, plan=strict("x", "y"))
        p.run("x1", group="x")
        p.run("y1", group="y")
        p.run("y2", group="y")
        first, second = p.core.reason("y1"), p.core.reason("y2")
        assert (first.code, first.numbers["ahead"]) == ("busy", 0)
        assert first.text == "The only slot has a job (x1), and its queue takes turns of 10 s with others: it is next."
        assert (second.code, second.numbers["rival"]) == ("order", "y1")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 4), st.integers(0, 2**32))
def test_with_queues_nobody_waits_longer_than_the_rounds_it_takes(slots, queues, jobs, seed):
    """Each queue, whatever is in it, and each job that shares gets its turn."""
    rng = random.Random(seed)
    names = [f"q{number}" for number in range(queues)]
    plan = Plan(
        instance_groups=(
            InstanceGroup(name="default", quantum=QUANTUM),
            *(InstanceGroup(name=name, policy=rng.choice(("fifo", "priority")), quantum=QUANTUM) for name in names),
        )
    )
    play = Clockwork(slots, plan)
    for number in range(jobs):
        play.arrive(f"j{number}")
        play.play(play.now + rng.choice((0.0, 1.0, 12.0)))
    firsts = {f"{name}.0" for name in names} | {f"j{number}" for number in range(jobs)}
    for name in names:
        for number in range(rng.randint(1, 3)):
            play.arrive(f"{name}.{number}", group=name)
            play.play(play.now + rng.choice((0.0, 3.5)))
    turners = jobs + queues
    play.play(play.now + 3 * turners * QUANTUM)
    play.waited.clear()
    play._idle_since = dict.fromkeys(play._idle_since, play.now)
    play.play(play.now + 4 * turners * QUANTUM)
    waited = max((seconds for job, seconds in play.waited.items() if job in firsts), default=0.0)
    assert waited <= (math.ceil(turners / slots) - 1) * QUANTUM + 1e-6
    assert replayed(play.history, plan).digest() == play.core.digest()


class TestLeastSizes:
    def test_nothing_is_granted_before_all_of_it_is_free(self, play):
        p = play(4)
        p.run("a")
        assert p.core.entitled("a") == 4
        p.arrive("gang", min_workers=3)
        assert p.core.entitled("gang") == 3
        slots = p.core.leaving("a")
        assert [p.release("a", slot) for slot in slots[:2]] == [[], []]
        assert [type(each) for each in p.release("a", slots[2])] == [Grant] * 3

    def test_it_never_runs_on_less(self, play):
        p = play(8)
        p.arrive("gang", min_workers=4)
        p.train("gang")
        for number in range(6):
            p.run(f"j{number}", 10**6)
            assert p.core.entitled("gang") in (0, *range(4, 9))
        p.release_all()

    def test_one_that_needs_many_gets_its_turn_among_many_small_ones(self):
        play = Clockwork(4)
        for number in range(6):
            play.arrive(f"j{number}")
            play.play(play.now + 1.7)
        play.arrive("gang", min_workers=3)
        play.play(60 * QUANTUM)
        assert play.ran["gang"] > 3 * QUANTUM
        assert min(play.ran.values()) > QUANTUM

    def test_units(self, play):
        p = play(9)
        p.arrive("a", slots_per_unit=4, max_workers=8)
        assert p.core.holding("a") == (0, 1, 2, 3)
        p.train("a", 7)
        assert len(p.core.holding("a")) == 4
        p.train("a", 8)
        assert len(p.core.holding("a")) == 8
        p.run("b")
        assert p.shares == {"a": 4, "b": 5}


class TestPatience:
    def test_a_job_that_got_no_slot_in_time_is_given_up_once(self):
        play = Clockwork(1, Plan(instance_groups=(InstanceGroup(name="default", policy="fifo", pending_timeout=30.0),)))
        play.arrive("a")
        play.arrive("b")
        play.arrive("c", pending_timeout=20.0)
        assert play.core.next_wake(5.0) == 20.0
        play.now = 20.0
        assert play.apply(TimePassed()) == [GiveUp("c", 20.0)]
        assert play.apply(TimePassed()) == []
        play.apply(JobGone("c"))
        assert play.core.next_wake(25.0) == 30.0
        play.apply(JobGone("a"))
        assert play.core.next_wake(25.0) is None, "b runs"

    def test_a_change_of_the_plan_counts(self, play):
        from edt_server.core.events import PlanChanged

        p = play(0)
        p.arrive("a")
        assert p.core.next_wake(0.0) is None
        p.step(PlanChanged(Plan(instance_groups=(InstanceGroup(name="default", pending_timeout=7.0),))))
        assert p.core.next_wake(2.0) == 8.0
        p.suspend("a")
        assert p.core.next_wake(2.0) is None, "it waits for a person"
        p.resume("a")
        assert p.core.next_wake(2.0) == 11.0
