"""A training with a budget of epochs, one story of the membership machine at a time: its training has two epochs."""

import pytest

from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines.events import Gather, StartWorker

from .story import Story, told_of
from .test_history import formed, past, started

REACHED = control.BudgetReached(training=0, epoch=1, epochs=2)


def budgets(story):
    return {each.message.budget for each in story.told(link.Generation)}


def test_a_generation_has_the_budget_of_the_newest_allocation(story):
    story.running(0, budget=1)
    story.allocate(2, 0, 1, budget=1)
    story.hello(1)
    story.ready(1)
    assert (told_of(story), budgets(story)) == ((2, [(0, False), (1, True)], [0, 1]), {1})


def test_members_that_hold_are_reported_and_leave_when_the_server_takes_their_slots(story):
    story.running(0, 1, budget=1)
    story.held(0, 2)
    assert story.reports[-1] == REACHED
    story.allocate(2, budget=1)
    assert told_of(story) == (3, [], [0, 1])
    for worker in (0, 1):
        story.left(worker, 3)
        story.exit(worker)
    assert [type(each) for each in story.reports[-2:]] == [control.SlotReturned] * 2
    story.allocate(3, 5, budget=2)
    assert story.of(StartWorker) == [StartWorker(2, Slot(id=5, host="h"))]


def test_more_budget_is_a_generation_of_the_same_members(story):
    story.running(0, 1, budget=1)
    story.held(0, 2)
    story.allocate(2, 0, 1, budget=2)
    assert (told_of(story), budgets(story)) == ((3, [(0, False), (1, False)], [0, 1]), {2})
    story.allocate(3, 0, 1, budget=2)
    assert story.last == []


def test_more_budget_waits_for_the_change_under_way_and_for_no_worker(story):
    story.patient = True
    story.running(0, 1, budget=1)
    story.allocate(2, 0, 1, 2, budget=1)
    assert story.of(StartWorker)
    story.allocate(3, 0, 1, 2, budget=2)
    assert story.of(Gather) == []
    assert (told_of(story)[1], budgets(story)) == ([(0, False), (1, False)], {2})
    story.allocate(4, 0, 1, 2, budget=None)
    assert story.told(link.Generation) == []
    story.joined(0, 3)
    story.joined(1, 3)
    assert budgets(story) == {None}


def test_members_that_hold_are_watched_by_nobody_until_they_go_on(story):
    story.running(0, budget=1)
    assert story.machine.taking_part == {0}
    story.held(0, 1)
    assert story.machine.taking_part == frozenset()
    story.allocate(2, 0, budget=2)
    assert story.machine.taking_part == {0}


@pytest.mark.parametrize(
    ("generation", "epoch", "budget"),
    [
        pytest.param(0, 1, 1, id="of an older generation"),
        pytest.param(1, 1, None, id="without a budget"),
        pytest.param(1, 1, 2, id="before its budget"),
        pytest.param(1, 2, 1, id="at the end"),
    ],
)
def test_a_hold_that_cannot_be_is_no_report(story, generation, epoch, budget):
    story.running(0, budget=budget)
    story.held(0, generation, epoch)
    assert not any(isinstance(report, control.BudgetReached) for report in story.reports)


def test_a_death_while_all_hold_makes_a_generation_that_holds_again(story):
    story.running(0, 1, budget=1)
    story.held(0, 2)
    story.kill(0)
    number, members, told = told_of(story)
    assert (number, members, told, budgets(story)) == (3, [(1, False)], [1], {1})
    story.joined(1, 3)
    story.held(1, 3)
    assert story.reports.count(REACHED) == 2


def test_each_validation_is_reported_once(story):
    story.running(0, 1, budget=2)
    story.validated(0, 1)
    report = control.EpochValidated(training=0, epoch=1, loss=0.5, accuracy=None, metrics={})
    assert story.reports[-1] == report
    for worker, epoch, training in ((1, 1, 0), (0, 0, 0), (0, 3, 0), (0, 2, 1)):
        story.validated(worker, epoch, training)
    assert [each for each in story.reports if isinstance(each, control.EpochValidated)] == [report]


def test_a_new_supervisor_does_not_repeat_the_validations_of_the_last():
    validated = control.EpochValidated(training=0, epoch=1, loss=0.5, accuracy=None, metrics={})
    story = Story(past(started(0), formed(0, 1), validated))
    story.allocate(1, 0, budget=2)
    story.driver()
    story.train()
    story.hello(0)
    story.ready(0)
    story.validated(0, 1)
    assert validated not in story.reports
    story.validated(0, 2)
    assert [each.epoch for each in story.reports if isinstance(each, control.EpochValidated)] == [2]
