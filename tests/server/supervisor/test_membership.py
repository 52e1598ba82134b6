"""Who is a member of a training and when, one story of the membership machine at a time."""

import pytest

from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines.events import (
    DRIVER,
    Acknowledged,
    End,
    Gather,
    Gathered,
    Note,
    Publish,
    SendMessage,
    SendReport,
    StartDriver,
    Started,
    StartWorker,
    Stop,
)
from edt_server.supervisor.state_machines.generation import TrainingRun
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.membership import JobMembership

from .story import Story, members


def test_nothing_starts_without_a_slot_and_everything_with_the_first(story):
    assert story.allocate(1) == []
    assert story.allocate(2, 5) == [StartDriver(), StartWorker(0, Slot(id=5, host="h"))]


def test_an_older_allocation_is_ignored(story):
    story.allocate(2, 5)
    story.allocate(1, 5, 6)
    assert story.of(StartWorker) == []
    assert story.of(Note)


def test_a_worker_is_told_to_begin_when_it_said_hello_and_a_training_is_wanted(story):
    story.allocate(1, 0, 1)
    story.driver()
    assert story.hello(0) == []
    story.train()
    assert story.last[1:] == [SendMessage(0, link.Begin(training=0, payload="/p"))]
    assert story.reports[-1] == control.TrainingStarted(training=0, shards=4, epochs=2)
    assert story.hello(1) == [SendMessage(1, link.Begin(training=0, payload="/p"))]


def test_the_first_ready_trains_alone_and_all_ready_since_join_together(story):
    story.allocate(1, 0, 1, 2)
    story.driver()
    story.train()
    for worker in range(3):
        story.hello(worker)
    first = story.ready(1)[0].message
    assert (first.number, members(first)) == (1, [(1, True)])
    story.ready(2)
    assert story.last == []
    story.ready(0)
    assert story.last == []
    story.joined(1, 1)
    assert story.reports[-1] == control.GenerationFormed(
        training=0, number=1, workers=(1,), slots=(1,), pids=(201,), update=0
    )
    generation = story.told(link.Generation)
    assert [each.process for each in generation] == [1, 0, 2]
    assert members(generation[0].message) == [(1, False), (0, True), (2, True)]
    assert [(m.pid, m.store_port) for m in generation[0].message.members] == [(201, 3001), (200, 3000), (202, 3002)]


def test_a_generation_has_formed_only_when_the_last_has_joined(story):
    story.running(0)
    story.allocate(2, 0, 1)
    story.hello(1)
    story.ready(1)
    story.joined(1, 2, update=5)
    assert story.of(SendReport) == []
    story.joined(0, 1, update=5)
    assert story.of(SendReport) == [], "of an older generation"
    story.joined(0, 2, update=5)
    formed = story.reports[-1]
    assert (formed.number, formed.workers, formed.update) == (2, (0, 1), 5)


def test_a_revoked_member_leaves_at_the_next_boundary_and_its_slot_is_free_when_it_is_gone(story):
    story.running(0, 1)
    story.allocate(2, 0)
    told = story.told(link.Generation)
    assert [each.process for each in told] == [0, 1]
    assert members(told[0].message) == [(0, False)]
    story.say(1, link.Left(worker=1, generation=3, update=4))
    assert story.of(SendReport) == []
    story.exit(1)
    assert story.reports[-1] == control.SlotReturned(slot=1, worker=1, exit_code=0)


def test_wishes_during_a_change_wait_until_everybody_joined_and_left(story):
    story.running(0, 1)
    story.allocate(2, 0)
    story.allocate(3, 0, 2)
    story.hello(2)
    story.ready(2)
    assert story.told(link.Generation) == []
    story.joined(0, 3)
    assert story.told(link.Generation) == [], "one is still leaving"
    story.say(1, link.Left(worker=1, generation=3, update=4))
    story.exit(1)
    assert members(story.told(link.Generation)[0].message) == [(0, False), (2, True)]


@pytest.mark.parametrize("stage", ["started", "hello", "begun"])
def test_a_worker_in_no_generation_is_simply_ended_when_its_slot_is_revoked(story, stage):
    story.running(0)
    story.allocate(2, 0, 1)
    story(Started(1, 101))
    if stage != "started":
        story.hello(1)
    story.allocate(3, 0)
    assert story.last == [End(1, 0.0)]
    story.exit(1, -15, signals=(15,))
    assert story.reports[-1] == control.SlotReturned(slot=1, worker=1, exit_code=-15)
    assert not story.machine.over


def test_a_slot_that_comes_back_while_its_worker_leaves_is_released_and_taken_again_behind_the_ack(story):
    story.running(0)
    story.allocate(2, 0, 1)
    story(Started(1, 101))
    story.allocate(3, 0)
    story.allocate(4, 0, 1)
    story.exit(1, -15, signals=(15,))
    assert story.reports[-1] == control.SlotReturned(slot=1, worker=1, exit_code=-15)
    number = story.of(SendReport)[-1].number
    assert story.machine.holding == (0, 1), "the server may not know yet"
    story.allocate(5, 0, 1)
    assert story.of(StartWorker) == [], "this was on its way before the server knew of the release"
    story(Acknowledged(number))
    assert story.machine.holding == (0,)
    story.allocate(6, 0, 1)
    assert story.of(StartWorker) == [StartWorker(2, Slot(id=1, host="h"))]


def test_a_member_without_a_slot_stays_until_another_has_its_state(story):
    story.running(0)
    story.allocate(2, 7)
    assert story.told(link.Generation) == []
    story.hello(1)
    story.ready(1)
    assert members(story.told(link.Generation)[0].message) == [(0, False), (1, True)]
    story.joined(0, 2)
    story.joined(1, 2)
    assert members(story.told(link.Generation)[0].message) == [(1, False)]


def test_no_more_members_than_shards(story):
    story.allocate(1, 0, 1)
    story.driver()
    story.train(shards=1)
    story.hello(0)
    story.hello(1)
    story.ready(0)
    story.joined(0, 1)
    story.ready(1)
    assert story.told(link.Generation) == []


def test_the_end_of_a_training_frees_every_slot_and_the_next_takes_new_ones(story):
    story.running(0, 1)
    story.allocate(2, 0, 1, 2)
    story(Started(2, 102))
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    assert End(2, 0.0) in story.last
    story.exit(1, 0)
    assert story.of(SendReport) == []
    story.exit(2, -15, signals=(15,))
    story.exit(0, 0)
    assert story.reports[-4:] == [
        control.TrainingEnded(training=0, updates=9),
        control.SlotReturned(slot=0, worker=0, exit_code=0),
        control.SlotReturned(slot=1, worker=1, exit_code=0),
        control.SlotReturned(slot=2, worker=2, exit_code=-15),
    ]
    assert story.told(link.TrainingDone) == [SendMessage(DRIVER, link.TrainingDone(training=0, updates=9))]
    story(Acknowledged(len(story.reports)))
    story.allocate(3, 4)
    assert story.of(StartWorker) == [], "no training wants it"
    story.train(training=1)
    assert story.of(StartWorker) == [StartWorker(3, Slot(id=4, host="h"))]
    story.hello(3)
    story.ready(3, training=1)
    assert story.told(link.Generation)[0].message.number == 1


def test_trainings_come_one_after_another(story):
    story.running(0)
    story.train(training=1)
    assert End(0, 0.0) in story.last
    story.exit(0, -15, signals=(15,))
    story.exit(DRIVER, 1)
    assert "asked for training 1 where 0 was next" in story.reports[-1].message


def test_progress_is_passed_on_and_that_of_another_training_is_not(story):
    story.running(0)
    progress = link.Progress(worker=0, training=0, update=3, total_updates=10, epoch=0, epochs=2, loss=0.5)
    story.say(0, progress)
    assert [each.progress.update for each in story.of(Publish)] == [3]
    stale = link.Progress(worker=0, training=5, update=3, total_updates=10, epoch=0, epochs=2)
    story.say(0, stale)
    assert story.of(Publish) == []


def test_reports_of_an_earlier_attempt_are_counted():
    machine = JobMembership(interpreter="/opt/python", history=History(reports=7))
    assert machine.apply(Stop("x"))[0].number == 8


def published(story):
    training = story.machine._training
    return training.members


def test_who_is_ready_waits_a_moment_for_others_who_soon_will_be():
    story = Story(patient=True)
    story.allocate(1, 0, 1, 2, 3)
    story.driver()
    for worker in range(4):
        story.hello(worker)
    story.train()
    story.ready(0)
    assert published(story) == (0,), "there is nobody who could train meanwhile"
    story.joined(0, 1)
    story.ready(2)
    assert [each for each in story.last if isinstance(each, Gather)] == [Gather(1)]
    assert published(story) == (0,)
    story.ready(1)
    assert published(story) == (0,)
    story(Gathered(1))
    assert published(story) == (0, 1, 2)
    for worker in range(3):
        story.joined(worker, 2)
    story.ready(3)
    assert published(story) == (0, 1, 2, 3), "nobody else is on the way"


def test_a_death_waits_for_nobody():
    story = Story(patient=True)
    story.running(0)
    story.allocate(2, 0, 1, 2)
    story.hello(1)
    story.hello(2)
    story.ready(1)
    story.kill(0)
    assert published(story) == (1,)


def test_members_on_the_same_host_follow_each_other():
    hosts = {0: "b", 1: "a", 2: "b", 3: "a"}
    training = TrainingRun(0, "payload", shards=8, epochs=1, members=(0, 1))
    following = training.next_members([2, 3], lambda _: True, hosts.__getitem__, None, suspended=False)
    assert following == (0, 2, 1, 3)
    training.change(following, None)
    training.joining.clear()
    assert training.next_members([], lambda _: True, hosts.__getitem__, None, suspended=False) is None
    assert training.next_members([], lambda it: it > 0, hosts.__getitem__, None, suspended=False) == (2, 1, 3)
