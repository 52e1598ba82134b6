"""A job whose files are on one host, its home: rank 0 is there, and without a slot there the job moves."""

import pytest

from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.state_machines.events import (
    Acknowledged,
    End,
    Finish,
    Kill,
    SendReport,
    Started,
    StartWorker,
)
from tests.server.supervisor.story import Story, members, told_of

HOSTS = {0: "b", 1: "a", 2: "b", 3: "a"}
"""Slots of the hosts a, which is home, and b."""


@pytest.fixture
def story():
    made = Story(home="a")
    made.hosts = HOSTS
    return made


def begun(story, *slots):
    """A training is asked for, and each slot has a worker that is about to prepare; the workers' numbers by slot."""
    story.allocate(1, *slots)
    story.driver()
    story.train()
    for worker in range(len(slots)):
        story.hello(worker)
    return {slot: worker for worker, slot in enumerate(sorted(slots))}


def spread(story, *slots):
    """All of them train: a worker of the home first, then the others."""
    workers = begun(story, *slots)
    story.patient = True
    for slot in sorted(slots, key=lambda slot: HOSTS[slot] != "a"):
        story.ready(workers[slot])
    while story.machine._training.changing:
        training = story.machine._training
        for worker in tuple(training.joining):
            story.joined(worker, training.generation)
    assert len(story.machine._training.members) == len(slots)
    story.patient = False
    return workers


def no_reports(story, *kinds):
    return not [each for each in story.reports if isinstance(each, kinds)]


def test_nobody_trains_before_a_worker_of_the_home_is_ready(story):
    begun(story, 0, 1, 2)
    story.ready(0)
    assert story.told(link.Generation) == []
    story.ready(2)
    assert story.told(link.Generation) == []
    story.ready(1)
    number, ranks, told = told_of(story)
    assert (number, sorted(told)) == (1, [0, 1, 2])
    assert ranks[0] == (1, True), "rank 0 writes the files"
    assert sorted(ranks) == [(0, True), (1, True), (2, True)]


def test_without_a_home_the_first_that_is_ready_trains():
    story = Story()
    story.hosts = HOSTS
    begun(story, 0, 1)
    story.ready(0)
    assert members(story.told(link.Generation)[0].message) == [(0, True)]


def test_who_joins_at_home_is_in_front_of_those_elsewhere(story):
    workers = begun(story, 1, 0, 3)
    first, elsewhere, later = workers[1], workers[0], workers[3]
    story.ready(first)
    story.joined(first, 1)
    story.ready(elsewhere)
    story.joined(first, 2)
    story.joined(elsewhere, 2)
    story.ready(later)
    assert members(story.told(link.Generation)[0].message) == [(first, False), (later, True), (elsewhere, False)]


def test_survivors_elsewhere_wait_for_the_next_worker_of_the_home(story):
    workers = spread(story, 1, 0)
    home, away = workers[1], workers[0]
    story.kill(home)
    assert story.told(link.Generation) == [], "they have the state, and nobody could write it"
    assert story.of(StartWorker) == [StartWorker(2, story.slot(1))]
    assert not story.machine.over
    story.broken(away, 2)
    assert story.told(link.Generation) == []
    story.hello(2)
    story.ready(2)
    _, ranks, told = told_of(story)
    assert ranks == [(2, True), (away, False)], "the new one is rank 0, and gets the state of the survivor"
    assert sorted(told) == [away, 2]


def test_a_worker_elsewhere_that_dies_costs_one_generation(story):
    workers = spread(story, 1, 0)
    story.kill(workers[0])
    assert members(story.told(link.Generation)[0].message) == [(workers[1], False)]


def test_when_one_of_two_slots_of_the_home_goes_the_other_has_rank_0(story):
    workers = spread(story, 1, 3, 0)
    story.allocate(2, 3, 0)
    assert members(story.told(link.Generation)[0].message) == [(workers[3], False), (workers[0], False)]
    assert no_reports(story, control.Relocated)


def test_the_last_slot_of_the_home_is_taken_and_the_job_moves(story):
    workers = spread(story, 1, 0, 2)
    story.allocate(2, 0, 2)
    number, ranks, told = told_of(story)
    assert ranks == [], "all leave, and the state is written at home"
    assert sorted(told) == sorted(workers.values())
    assert no_reports(story, control.Relocated, control.SlotReturned)
    for worker in (workers[0], workers[2]):
        story.left(worker, number, update=4)
        story.exit(worker)
        assert story.of(SendReport) == [], "their slots are for the next supervisor"
    assert not story.machine.over
    story.left(workers[1], number, update=4)
    story.exit(workers[1])
    assert story.reports[-2:] == [
        control.SlotReturned(slot=1, worker=workers[1], exit_code=0),
        control.Relocated(host="a"),
    ]
    assert story.of(Finish) == [Finish(over=False)]
    assert story.machine.over
    assert story.machine.holding == (0, 1, 2), "the server may not know yet that 1 is free"
    story(Acknowledged(len(story.reports)))
    assert story.machine.holding == (0, 2)


def test_workers_that_start_elsewhere_are_ended_when_the_job_moves(story):
    workers = begun(story, 1, 0, 2)
    story.ready(workers[1])
    story.joined(workers[1], 1)
    story.allocate(2, 0, 2)
    assert sorted(each.process for each in story.of(End)) == [workers[0], workers[2]]
    for worker in (workers[0], workers[2]):
        story.exit(worker, -15, signals=(15,))
        assert story.of(StartWorker) == [], "nothing starts any more"
    number = story.machine._training.generation
    story.left(workers[1], number, update=1)
    story.exit(workers[1])
    assert story.reports[-1] == control.Relocated(host="a")
    assert not [each for each in story.reports if isinstance(each, control.SlotReturned) and each.slot != 1]


def test_a_worker_that_dies_while_the_job_moves_is_no_reason_to_stay(story):
    workers = spread(story, 1, 0)
    story.allocate(2, 0)
    number = told_of(story)[0]
    story.kill(workers[1])
    assert not story.machine.over, "the other one may still write the state"
    story.left(workers[0], number, update=4)
    story.exit(workers[0])
    assert story.reports[-1] == control.Relocated(host="a")
    assert story.of(Finish) == [Finish(over=False)]


def test_a_slot_at_home_that_comes_while_the_job_moves_keeps_it_there(story):
    workers = spread(story, 1, 0)
    story.allocate(2, 0)
    number = told_of(story)[0]
    story.allocate(3, 0, 3)
    for worker in workers.values():
        story.left(worker, number, update=4)
        story.exit(worker)
    assert no_reports(story, control.Relocated)
    assert not story.machine.over
    story(Acknowledged(len(story.reports)))
    story.allocate(4, 0, 3)
    assert {worker.slot.id for worker in story.machine._workers.values()} == {0, 3}


def test_with_no_slot_at_all_the_job_is_suspended_and_does_not_move(story):
    workers = spread(story, 1, 0)
    story.allocate(2)
    number, ranks, _ = told_of(story)
    assert ranks == []
    for worker in workers.values():
        story.left(worker, number, update=4)
        story.exit(worker)
    assert no_reports(story, control.Relocated)
    assert not story.machine.over
    assert sorted(each.slot for each in story.reports if isinstance(each, control.SlotReturned)) == [0, 1]


def test_a_suspended_job_that_gets_slots_elsewhere_alone_moves(story):
    workers = spread(story, 1)
    story.allocate(2)
    story.left(workers[1], told_of(story)[0], update=4)
    story.exit(workers[1])
    story(Acknowledged(len(story.reports)))
    story.allocate(3, 0, 2)
    assert story.of(StartWorker) == []
    assert story.reports[-1] == control.Relocated(host="a")
    assert story.of(Finish) == [Finish(over=False)]


def test_without_a_home_no_job_moves():
    story = Story()
    story.hosts = HOSTS
    story.running(1, 0)
    story.allocate(2, 0)
    assert members(story.told(link.Generation)[0].message) == [(0, False)]
    story.left(1, 3, update=4)
    story.exit(1)
    assert no_reports(story, control.Relocated)
    assert not story.machine.over


def test_a_slot_of_the_home_is_never_given_up(story):
    """Others train without a worker that never gets ready, but not without one at home."""
    workers = spread(story, 1, 0)
    story.kill(workers[1])
    for _ in range(8):
        (start,) = story.of(StartWorker)
        assert start.slot == story.slot(1)
        story(Started(start.worker, 100 + start.worker))
        story.kill(start.worker)
        if story.machine.over or any(isinstance(each, control.JobEnded) for each in story.reports):
            break
    assert 1 not in story.machine.given_up


def test_members_that_do_not_reach_each_other_are_parted_at_once(story):
    workers = spread(story, 1, 0)
    home, away = workers[1], workers[0]
    story.allocate(2, 1, apart=("b",))
    (_, to_home), (_, to_away) = [(each.process, each.message) for each in story.told(link.Generation)]
    assert to_home == to_away
    assert members(to_home) == [(home, False)]
    assert to_home.gone == (away,), "neither waits for the other any more"
    assert story.of(Kill) == []
    story.broken(home, to_home.number - 1)
    story.joined(home, to_home.number)
    story.left(away, to_home.number)
    story.exit(away)
    assert story.reports[-1] == control.SlotReturned(slot=0, worker=away, exit_code=0)
    assert no_reports(story, control.WorkerLost)


def test_a_worker_that_waits_for_the_agent_of_a_host_apart_is_needed_no_more(story):
    workers = begun(story, 1, 0)
    story.ready(workers[1])
    story.joined(workers[1], 1)
    story.allocate(2, 1, apart=("b",))
    assert story.of(End) == [End(workers[0], 0.0)]
    story.exit(workers[0], -15, signals=(15,))
    assert story.reports[-1] == control.SlotReturned(slot=0, worker=workers[0], exit_code=-15)
    assert no_reports(story, control.WorkerLost)
