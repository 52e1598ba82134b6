"""A job with a budget of epochs: it asks for nothing from when it has reached it until it has more."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import JobArrived, JobBudget, JobDemand, JobHeld, JobResumed, JobSuspended, SlotsChanged
from tests.server.core.test_properties import checked_step, drain, held, targets


@pytest.fixture
def core() -> Core:
    """One job on both slots, which may train three epochs."""
    core = Core()
    core.apply(SlotsChanged((Slot(id=0, host="h"), Slot(id=1, host="h"))), 0.0)
    for event in (JobArrived("a", 5000, 2, "default"), JobBudget("a", 3), JobDemand("a", 2)):
        core.apply(event, 0.0)
    assert core.holding("a") == (0, 1)
    return core


def test_it_gives_all_slots_back_and_says_why(core: Core) -> None:
    core.apply(JobHeld("a", 3, 27), 1.0)
    assert (core.holding("a"), core.leaving("a"), core.asked("a")) == ((), (1, 0), 0)
    reason = core.reason("a")
    assert reason is not None
    assert reason.code == "suspended"
    assert reason.text == "It has reached 3 of 27 epochs; its search decides, and its workers still leave 2 slots."
    assert reason.numbers == {"epoch": 3, "epochs": 27}
    drain(core, 2.0)
    reason = core.reason("a")
    assert reason is not None
    assert reason.text == "It has reached 3 of 27 epochs; its search decides."
    core.apply(JobBudget("a", 9), 3.0)
    assert (core.held("a"), core.suspended("a"), core.holding("a")) == (None, False, (0, 1))
    assert core.reason("a") is None


def test_a_budget_that_was_raised_in_the_meantime_wins(core: Core) -> None:
    core.apply(JobBudget("a", 9), 1.0)
    assert core.apply(JobHeld("a", 3, 27), 2.0) == []
    assert (core.held("a"), core.suspended("a")) == (None, False)


def test_what_a_user_suspended_stays_so_with_more_budget(core: Core) -> None:
    core.apply(JobHeld("a", 3, 27), 1.0)
    core.apply(JobSuspended("a"), 2.0)
    core.apply(JobBudget("a", None), 3.0)
    assert core.suspended("a")
    reason = core.reason("a")
    assert reason is not None
    assert "edt resume a" in reason.text


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_that_is_none_is_refused_and_changes_nothing(core: Core, budget: int) -> None:
    before = core.digest()
    with pytest.raises(Unprocessable, match="at least one epoch"):
        core.apply(JobBudget("a", budget), 1.0)
    assert core.digest() == before


@dataclass
class Expected:
    """A job as these events alone make it."""

    budget: int | None = None
    reached: int = 0
    by_user: bool = False

    def take(self, event: object) -> None:
        match event:
            case JobSuspended():
                self.by_user, self.reached = True, 0
            case JobResumed():
                self.by_user, self.reached = False, 0
            case JobBudget(budget=budget):
                self.budget = budget
                self.reached = self.reached if budget is not None and budget <= self.reached else 0
            case JobHeld(epoch=epoch):
                asleep = self.by_user or self.reached
                if self.budget is not None and self.budget <= epoch and not asleep:
                    self.reached = epoch


@pytest.mark.parametrize("seed", range(40))
def test_holds_budgets_and_suspensions_in_any_order(seed: int) -> None:
    """A job asks for slots exactly while neither a user nor its budget keeps it, and the core's promises hold."""
    rng = random.Random(seed)
    core = Core()
    core.apply(SlotsChanged(tuple(Slot(id=slot, host="h") for slot in range(5))), 0.0)
    names = ("a", "b", "c")
    expected = {name: Expected() for name in names}
    for name in names:
        core.apply(JobArrived(name, rng.choice((1000, 5000)), 4, "default"), 0.0)
        core.apply(JobDemand(name, 4), 0.0)
    for number in range(80):
        name = rng.choice(names)
        event = rng.choice(
            (
                JobBudget(name, rng.choice((None, 1, 3, 9))),
                JobHeld(name, rng.choice((1, 2, 3, 9)), 27),
                JobHeld(name, expected[name].budget or 27, 27),
                JobSuspended(name),
                JobResumed(name),
            )
        )
        expected[name].take(event)
        checked_step(core, event, float(number))
        for each, want in expected.items():
            assert (core.budget(each), core.held(each)) == (want.budget, (want.reached, 27) if want.reached else None)
            assert core.suspended(each) == bool(want.by_user or want.reached)
            assert (core.asked(each) > 0) == (not core.suspended(each))
        if rng.random() < 0.5:
            drain(core, float(number))
        assert Core.restored(core.state()).digest() == core.digest()


def test_a_hold_and_more_budget_leave_the_others_as_if_nothing_had_been() -> None:
    def play(*more: object) -> Core:
        core = Core()
        core.apply(SlotsChanged(tuple(Slot(id=slot, host="h") for slot in range(6))), 0.0)
        for name in ("a", "b"):
            core.apply(JobArrived(name, 5000, 6, "default"), 0.0)
            core.apply(JobDemand(name, 6), 0.0)
            drain(core, 0.0)
        for event in more:
            core.apply(event, 1.0)  # type: ignore[arg-type]
            drain(core, 1.0)
        return core

    alone = play()
    held_once = play(JobBudget("a", 1), JobHeld("a", 1, 3))
    assert targets(held_once) == {"a": 0, "b": 6}
    again = play(JobBudget("a", 1), JobHeld("a", 1, 3), JobBudget("a", 3))
    assert targets(again) == targets(alone)
    assert {job: len(slots) for job, slots in held(again).items()} == targets(alone)
