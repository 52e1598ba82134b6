"""The past of a job, from its journal; and a machine that begins with one."""

import pytest

from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Numbered, Slot
from edt_server.supervisor.state_machines.events import DRIVER, StartDriver, StartWorker
from edt_server.supervisor.state_machines.history import GENERATION_MARGIN, History, history_of

from .story import Story, members


def past(*reports):
    numbered = [Numbered(number=number, time=1.0, report=report) for number, report in enumerate(reports, start=1)]
    return history_of(numbered, lambda training: f"/job/training-{training}.payload")


def formed(training, number, update=0):
    return control.GenerationFormed(training=training, number=number, workers=(), slots=(), pids=(), update=update)


def started(training):
    return control.TrainingStarted(training=training, shards=4, epochs=2)


RUNNING = (
    control.DriverStarted(pid=1),
    control.WorkerStarted(worker=0, slot=0, pid=2),
    started(0),
    formed(0, 1),
    control.TrainingEnded(training=0, updates=9),
    started(1),
    control.WorkerStarted(worker=6, slot=0, pid=3),
    formed(1, 1),
    formed(1, 2, update=7),
)


def test_without_a_journal_there_is_none():
    assert past() == History()


def test_trainings_done_and_the_one_under_way():
    history = past(*RUNNING)
    assert (history.reports, history.trainings, history.workers, history.driver_ran) == (9, (9,), 7, True)
    assert history.committed == 7
    running = history.running
    assert (running.number, running.payload, running.shards) == (1, "/job/training-1.payload", 4)
    assert running.generation == 2 + GENERATION_MARGIN
    assert (running.members, running.updates) == ((), None)


def test_between_trainings_none_is_under_way():
    history = past(*RUNNING, control.TrainingEnded(training=1, updates=8))
    assert history.running is None
    assert history.trainings == (9, 8)


def test_a_generation_that_never_formed_is_not_used_again():
    assert past(started(0)).running.generation == GENERATION_MARGIN


def test_a_replaced_supervisor_goes_on_where_the_last_one_was():
    story = Story(past(*RUNNING))
    assert story.last == []
    story.allocate(1, 3)
    assert story.last == [StartDriver(), StartWorker(7, Slot(id=3, host="h"))]
    story.driver()
    story.hello(7)
    assert story.told(link.Begin)[0].message == link.Begin(training=1, payload="/job/training-1.payload")
    story.train(training=0)
    assert story.told(link.TrainingDone)[0].message.updates == 9
    story.train(training=1)
    assert not any(isinstance(report, control.TrainingStarted) for report in story.reports)
    story.ready(7, training=1)
    generation = story.told(link.Generation)[0].message
    assert (generation.number, members(generation)) == (3 + GENERATION_MARGIN, [(7, True)])


@pytest.mark.parametrize("ran", [True, False])
def test_a_driver_that_ran_before_is_started_without_a_slot(ran):
    story = Story(past(*RUNNING, control.TrainingEnded(training=1, updates=8)) if ran else None)
    story.allocate(1)
    assert story.last == ([StartDriver()] if ran else [])
    if ran:
        story.driver()
        story.exit(DRIVER, 0)
        assert story.reports[-1].message == "Finished: 2 trainings, 17 updates."
