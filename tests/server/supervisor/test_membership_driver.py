"""Deaths of drivers: the main script runs again and finds its training, until that has led nowhere too often."""

import pytest

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.state_machines.events import (
    DRIVER,
    StartDriver,
)
from edt_server.supervisor.state_machines.wording import LastLines

from .story import told_of


@pytest.mark.parametrize("code", [-9, -15, -11])
def test_a_driver_that_is_killed_is_started_again_and_attaches(story, code):
    story.running(0)
    story.exit(DRIVER, code)
    assert story.reports[-1] == control.DriverLost(
        pid=10,
        exit_code=code,
        why=f"The main script was killed by {'SIGKILL' if code == -9 else 'SIGTERM' if code == -15 else 'SIGSEGV'}.",
    )
    assert story.last[-1] == StartDriver()
    started = len(story.reports)
    story.driver()
    story.train()
    assert story.reports[started:] == [control.DriverStarted(pid=10)]
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    story.exit(0, 0)
    assert story.told(link.TrainingDone)
    story.exit(DRIVER, 0)
    assert story.reports[-1].state is JobState.FINISHED


def test_a_restarted_driver_is_told_of_trainings_that_are_done(story):
    story.running(0)
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    story.exit(0, 0)
    story.exit(DRIVER, -9)
    assert story.last[-1] == StartDriver(), "although the job holds no slot"
    story.driver()
    story.train()
    assert [each.message for each in story.told(link.TrainingDone)] == [link.TrainingDone(training=0, updates=9)]
    story.train(training=1)
    assert story.reports[-1] == control.TrainingStarted(training=1, shards=4, epochs=2)


def test_a_driver_that_dies_twice_without_progress_fails_the_job(story):
    story.running(0)
    story.exit(DRIVER, -9)
    story.driver()
    story.say(0, link.Progress(worker=0, training=0, update=1, total_updates=9, epoch=0, epochs=1))
    story.exit(DRIVER, -9)
    assert story.last[-1] == StartDriver()
    story.driver()
    story.exit(DRIVER, -9, words=LastLines("driver.stderr", "last"))
    story.exit(0, -15, signals=(15,))
    assert story.reports[-1] == control.JobEnded(
        state=JobState.FAILED,
        message="The main script was killed by SIGKILL. It was tried 2 times without progress in between.\n"
        "Last lines of driver.stderr:\nlast",
    )


def test_a_training_that_ends_while_it_is_being_suspended_has_ended(story):
    story.running(0, 1)
    story.allocate(2)
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    story.exit(1, 0)
    story.exit(0, 0)
    assert story.told(link.TrainingDone)
    released = [report.slot for report in story.reports if isinstance(report, control.SlotReturned)]
    assert released == [1, 0]
    story.exit(DRIVER, 0)
    assert story.reports[-1].state is JobState.FINISHED


def test_what_a_dead_member_says_of_a_training_without_progress_counts_once_a_generation(story):
    story.running(0, 1, 2)
    story.kill(0)
    story.kill(1)
    assert [type(report) for report in story.reports[-2:]] == [control.WorkerLost] * 2
    assert told_of(story)[1] == [(2, False)]


def test_what_the_workers_committed_between_two_deaths_of_the_driver_counts(story):
    story.running(0)
    for updates in (3, 4, 5):
        story.exit(DRIVER, -9, updates=updates)
        assert story.last[-1] == StartDriver()
        story.driver()
