"""How a job ends: finished, failed by a worker or by its driver, stopped, or refused by the server."""

import pytest

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.state_machines.events import (
    DRIVER,
    End,
    Finish,
    NotStarted,
    Refuse,
    SendReport,
    Started,
    Stop,
)
from edt_server.supervisor.state_machines.membership import TRAINED_GRACE
from edt_server.supervisor.state_machines.wording import LastLines


def finish_training(story):
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    story.exit(0, 0)


def test_finished(story):
    story.running(0)
    finish_training(story)
    story.exit(DRIVER, 0)
    assert story.reports[-1] == control.JobEnded(state=JobState.FINISHED, message="Finished: 1 training, 9 updates.")
    assert story.last[-1] == Finish()
    assert story.machine.over


def test_an_exit_code_after_the_training_is_done_does_not_matter(story):
    story.running(0, 1)
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    story.exit(1, -11)
    story.exit(0, 1)
    assert isinstance(story.reports[-3], control.TrainingEnded)


def test_a_worker_that_has_not_joined_yet_is_ended_at_once_when_the_training_is_done(story):
    story.running(0)
    story.allocate(2, 0, 1)
    story.hello(1)
    story.ready(1)
    assert story.told(link.Generation), "both are told, and the members of before finish without the new one"
    story.say(0, link.Trained(worker=0, training=0, updates=9))
    assert story.of(End) == [End(0, TRAINED_GRACE), End(1, 0.0)]
    story.exit(1, -15, signals=(15,))
    story.exit(0, 0)
    assert story.told(link.TrainingDone)


WORDS = LastLines("worker-1.stderr", "boom\nbang")


def end_of_failure(story):
    """Everybody who is left ends as told; the job's last report."""
    story.exit(0, -15, signals=(15,))
    failed = story.told(link.TrainingFailed)
    assert failed
    assert End(DRIVER, 5.0) in story.last
    story.say(DRIVER, link.Failed(worker=None, message="train.py raised JobFailed", traceback=""))
    story.exit(DRIVER, 1)
    ended = story.reports[-1]
    assert ended.message == failed[0].message.message
    assert ended.state is JobState.FAILED
    return ended.message


@pytest.mark.parametrize("code", [1, 0, -11, -6])
def test_a_worker_whose_own_code_ends_it_before_the_first_update_fails_the_job_with_its_last_lines(story, code):
    story.running(0, 1)
    story.exit(1, code, words=WORDS)
    assert End(0, 0.0) in story.last
    message = end_of_failure(story)
    assert message.startswith("Worker 1 (rank 1, slot 1) ")
    assert message.endswith(".\nLast lines of worker-1.stderr:\nboom\nbang")
    assert "times" not in message


def test_what_a_worker_says_of_its_failure_is_told(story):
    story.running(0, 1)
    story.say(1, link.Failed(worker=1, message="ValueError: bad sample", traceback="Traceback\nValueError: bad sample"))
    assert story.last == [End(1, 5.0)]
    story.exit(1, 1)
    assert End(0, 0.0) in story.last
    message = end_of_failure(story)
    assert message == "Worker 1 (rank 1, slot 1) failed: ValueError: bad sample.\nTraceback\nValueError: bad sample"


@pytest.mark.parametrize("code", [-11, 3])
def test_a_silent_death_is_the_cause_although_a_survivor_was_heard_first(story, code):
    story.running(0, 1)
    story.say(0, link.Failed(worker=0, message="Connection closed by peer", traceback=""))
    story.exit(0, 1)
    story.exit(1, code)
    story.exit(DRIVER, 1)
    assert story.reports[-1].message.startswith("Worker 1 (rank 1, slot 1) ")


def test_the_only_member_may_not_end_before_it_has_trained(story):
    story.running(0)
    story.exit(0, 0)
    story.exit(DRIVER, 1)
    assert story.reports[-1].message == (
        "Worker 0 (rank 0, slot 0) ended with exit code 0 before the training was finished."
    )


def test_a_worker_that_cannot_start_is_an_error(story):
    story.allocate(1, 0)
    story.driver()
    story(Started(0, 100))
    story.exit(0, 1, words=LastLines("worker-0.stderr", "No module named 'torch'"))
    assert story.last == [End(DRIVER, 0.0)]
    story.exit(DRIVER, -15, signals=(15,))
    assert story.reports[-1].state is JobState.ERROR
    assert story.reports[-1].message == (
        "Worker 0 (slot 0) could not start: it ended with exit code 1 before it could do anything.\n"
        "Last lines of worker-0.stderr:\nNo module named 'torch'"
    )


@pytest.mark.parametrize(
    ("code", "failed", "sentence", "last"),
    [
        (1, "train.py raised KeyError: 'x'", "train.py raised KeyError: 'x'.", "last"),
        (3, None, "The main script ended with exit code 3.", "last"),
        (0, None, "The main script ended while training 0 was running.", "last"),
        (
            2,
            None,
            "The main script ended with exit code 2: unrecognized arguments: --epocs 30.",
            "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --epocs 30",
        ),
    ],
)
def test_a_driver_that_fails_fails_the_job(story, code, failed, sentence, last):
    story.running(0)
    if failed is not None:
        story.say(DRIVER, link.Failed(worker=None, message=failed, traceback=""))
    story.exit(DRIVER, code, words=LastLines("driver.stderr", last))
    assert End(0, 0.0) in story.last
    story.exit(0, -15, signals=(15,))
    assert story.reports[-1] == control.JobEnded(
        state=JobState.FAILED, message=f"{sentence}\nLast lines of driver.stderr:\n{last}"
    )


def test_a_driver_that_never_trains_fails_the_job(story):
    story.allocate(1, 0)
    story.driver()
    story.exit(DRIVER, 0)
    story.exit(0, -15, signals=(15,))
    assert story.reports[-1].state is JobState.FAILED
    assert story.reports[-1].message.startswith("The main script ended without calling train().")


def test_a_driver_that_cannot_be_started_is_an_error(story):
    story.allocate(1, 0)
    story(NotStarted(DRIVER, "/opt/python cannot be run: No such file or directory."))
    story.exit(0, -15, signals=(15,))
    assert story.reports[-1].state is JobState.ERROR
    assert "/opt/python cannot be run" in story.reports[-1].message


def test_an_interpreter_without_edt_sdk_is_an_error_that_says_so(story):
    story.allocate(1, 0)
    story(Started(DRIVER, 10))
    story.exit(DRIVER, 1, words=LastLines("driver.stderr", "ModuleNotFoundError: No module named 'edt_sdk'"))
    story.exit(0, 1)
    assert story.reports[-1].state is JobState.ERROR
    assert story.reports[-1].message.startswith("The driver could not start: /opt/python has no edt_sdk.")


def test_stop_ends_everything_at_once(story):
    story.running(0, 1)
    story(Stop("Stopped by ann."))
    assert story.last == [End(0, 0.0), End(1, 0.0), End(DRIVER, 0.0)]
    story(Stop("again"))
    assert story.last == []
    for process in (0, DRIVER):
        story.exit(process, -15, signals=(15,))
        assert story.of(SendReport) == []
    story.exit(1, -9, signals=(15, 9))
    assert story.reports[-1] == control.JobEnded(state=JobState.KILLED, message="Stopped by ann.")


def test_refused_ends_everything_and_reports_nothing(story):
    story.running(0)
    before = len(story.reports)
    story(Refuse("older attempt"))
    for process in (0, DRIVER):
        story.exit(process, -15, signals=(15,))
    assert story.last == [Finish(over=False)]
    assert len(story.reports) == before


def test_stop_before_anything_started(story):
    story(Stop("never mind"))
    assert [each.report for each in story.of(SendReport)] == [
        control.JobEnded(state=JobState.KILLED, message="never mind")
    ]
    assert story.last[-1] == Finish()
    assert story.allocate(1, 0) == []
