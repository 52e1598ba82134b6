"""Workers that are ready before there is a slot for them, one story at a time."""

import msgspec
import pytest

from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.main import _machine_of
from edt_server.supervisor.state_machines.events import (
    AssignStandby,
    End,
    Exited,
    Finish,
    Gather,
    Kill,
    LinkLost,
    MemoryScarce,
    Note,
    NotStarted,
    Received,
    Started,
    StartStandby,
    StartWorker,
    Stop,
)
from edt_server.supervisor.state_machines.history import History

from .story import Story, members


@pytest.fixture
def story():
    """One member, and three slots more to hope for."""
    story = Story(standbys=2)
    story.running(0, asked=4)
    return story


def slot(number):
    return Slot(id=number, host="h")


def prepared(story, *workers):
    """Standbys of these numbers, ready."""
    story.progress(0, 1)
    for worker in workers:
        story.hello(worker)
        story.ready(worker)


def test_one_after_the_other_is_started_once_the_members_train(story):
    assert not story.of(StartStandby), "its first update has enough to do"
    assert story.progress(0, 1)[1:] == [StartStandby(1)]
    assert story.progress(0, 2)[1:] == [], "one at a time"
    before = list(story.reports)
    assert story.hello(1)[-1].message == link.Begin(training=0, payload="/p", rehearse=True)
    assert story.ready(1) == [StartStandby(2)]
    story.hello(2)
    assert story.ready(2) == [], "no more than that"
    assert story.reports == before, "nobody hears of them"
    assert story.machine.processes == {0: 100}


def test_the_slot_that_is_granted_has_a_worker_at_once_in_the_very_next_generation(story):
    prepared(story, 1, 2)
    story.allocate(2, 0, 7, asked=4)
    assert story.of(AssignStandby) == [AssignStandby(1, slot(7))]
    assert story.of(StartWorker) == []
    assert story.reports[-1] == control.WorkerStarted(worker=1, slot=7, pid=101)
    assert members(story.told(link.Generation)[0].message) == [(0, False), (1, True)]
    assert story.machine.processes == {0: 100, 1: 101}


def test_two_slots_are_one_change(story):
    prepared(story, 1, 2)
    story.allocate(2, 0, 7, 8, asked=4)
    assert story.of(AssignStandby) == [AssignStandby(1, slot(7)), AssignStandby(2, slot(8))]
    assert members(story.told(link.Generation)[0].message) == [(0, False), (1, True), (2, True)]


def test_who_is_ready_waits_a_moment_for_the_worker_of_another_slot():
    story = Story(standbys=1, patient=True)
    story.running(0, asked=4)
    prepared(story, 1)
    story.allocate(2, 0, 7, 8, asked=4)
    assert story.of(AssignStandby) == [AssignStandby(1, slot(7))]
    assert story.of(StartWorker) == [StartWorker(2, slot(8))]
    assert story.of(Gather)
    assert not story.told(link.Generation)


def test_one_that_is_still_on_its_way_is_the_worker_of_a_slot_all_the_same(story):
    story.progress(0, 1)
    story.allocate(2, 0, 7, asked=4)
    assert story.of(AssignStandby) == [AssignStandby(1, slot(7))]
    assert not [each for each in story.reports if isinstance(each, control.WorkerStarted) and each.worker == 1]
    story.hello(1)
    assert control.WorkerStarted(worker=1, slot=7, pid=101) in story.reports
    story.ready(1)
    assert members(story.told(link.Generation)[0].message) == [(0, False), (1, True)]


def test_it_takes_the_place_of_a_member_that_died(story):
    prepared(story, 1, 2)
    story.allocate(2, 0, 7, asked=4)
    story.joined(0, 2, 3)
    story.joined(1, 2, 3)
    story.kill(1)
    assert story.of(AssignStandby) == [AssignStandby(2, slot(7))]
    generation = story.told(link.Generation)[0].message
    assert (generation.number, members(generation)) == (3, [(0, False), (2, True)])


def test_its_death_is_nobodys_concern_and_another_one_comes(story):
    prepared(story, 1, 2)
    before = list(story.reports)
    story(LinkLost(1, "it closed the connection"))
    assert story.last == [Kill(1, 1.0)]
    story.allocate(2, 0, 7, asked=4)
    assert story.of(AssignStandby) == [AssignStandby(2, slot(7))], "one that dies is given nothing"
    story(Exited(1, -9))
    story.joined(0, 2, 2)
    story.joined(2, 2, 2)
    assert not [each for each in story.reports[len(before) :] if isinstance(each, control.WorkerLost)]
    story.progress(0, 4)
    assert story.of(StartStandby) == [StartStandby(3)]


def test_where_something_kills_them_all_there_are_none_any_more(story):
    story.progress(0, 1)
    for worker in (1, 2, 3):
        assert story.of(StartStandby) == [StartStandby(worker)]
        story(Started(worker, 100 + worker))
        story(Exited(worker, -9))
    assert not story.of(StartStandby)
    story.progress(0, 9)
    assert not story.of(StartStandby)


@pytest.mark.parametrize(
    "event",
    [
        NotStarted(1, "there is little memory left"),
        Received(1, link.Failed(worker=1, message="OSError: no such file", traceback="…", final=False)),
    ],
)
def test_what_it_cannot_do_is_noted_and_not_tried_again_in_this_training(story, event):
    story.progress(0, 1)
    story(event)
    assert story.of(Note)
    story(Exited(1, 1))
    story.progress(0, 2)
    assert not story.of(StartStandby)
    assert not story.machine.over
    story.allocate(2, 0, 7, asked=4)
    assert story.of(StartWorker), "the worker of a slot says what is wrong, if it meets it too"


def test_they_go_when_there_is_nothing_to_hope_for(story):
    prepared(story, 1, 2)
    assert story.allocate(2, 0, asked=2) == [End(2, 0.0)]
    assert story.allocate(3, 0, asked=1) == [End(1, 0.0)]
    story(Exited(1, -15, (15,)))
    story(Exited(2, -15, (15,)))
    story.progress(0, 5)
    assert not story.of(StartStandby)


def test_they_go_when_memory_is_scarce(story):
    prepared(story, 1, 2)
    assert story(MemoryScarce()) == [End(1, 0.0), End(2, 0.0)]
    assert story(MemoryScarce()) == []
    story(Exited(1, -15, (15,)))
    story.progress(0, 5)
    assert not story.of(StartStandby)


def test_a_suspended_job_keeps_none(story):
    prepared(story, 1, 2)
    story.allocate(2, asked=0)
    assert {End(1, 0.0), End(2, 0.0)} <= set(story.of(End))


def test_the_job_ends_when_they_are_gone_too(story):
    prepared(story, 1)
    story(Stop("enough"))
    assert {each.process for each in story.of(End)} >= {0, 1}
    story.exit(0, -15, signals=(15,))
    story.exit(-1, -15, signals=(15,))
    assert not story.of(Finish)
    story.exit(2, -15, signals=(15,))
    story.exit(1, -15, signals=(15,))
    assert story.of(Finish)


def test_a_training_that_is_over_has_none(story):
    prepared(story, 1)
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    assert End(1, 0.0) in story.of(End)


def test_slots_of_a_gpu_have_none():
    story = Story(standbys=2)
    story.running(0, asked=4, device="cuda:0")
    story.progress(0, 1)
    assert not story.of(StartStandby)


def test_who_has_no_more_shards_than_members_needs_none():
    story = Story(standbys=2)
    story.allocate(1, 0, asked=4)
    story.driver()
    story.hello(0)
    story.train(shards=1)
    story.ready(0)
    story.joined(0, 1)
    story.progress(0, 1)
    assert not story.of(StartStandby)


@pytest.mark.parametrize(("search", "kept"), [("", 1), ("digits-abcdef", 0)])
def test_a_trial_of_a_search_keeps_none(orders, search, kept):
    spec = msgspec.structs.replace(orders.spec, search=search, framework="edtPyTorch")
    machine = _machine_of(msgspec.structs.replace(orders, spec=spec, standbys=1), History())
    assert machine._standbys._most == kept
