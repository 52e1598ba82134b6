"""Suspend and resume as changes of a ledger: no processes."""

from __future__ import annotations

import resource
import signal
from contextlib import contextmanager

import pytest

from edt_sdk.schemas.errors import Conflict, InvalidRequest, NotFound, Unprocessable
from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.registered import Registered
from edt_sdk.schemas.validation import Validates
from edt_sdk.schemas.wire import control
from edt_server.ledger import suspension
from edt_server.store import StoreUnavailable


@contextmanager
def no_room_for_a_page():
    """Small files can be written, a page of the store cannot: what fails is the commit."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def checkpoint(play, job, name, training=0):
    folder = play.paths(job).checkpoints(training)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.ckpt").touch()
    play.paths(job).job_dir.mkdir(parents=True, exist_ok=True)
    play.paths(job).payload(training).touch()


class TestSuspend:
    def test_it_is_suspended_when_the_last_slot_is_free(self, trained):
        trained.suspend("a")
        assert trained.outcome.allocations["a"].slots == ()
        assert trained.state("a") is JobState.RUNNING
        trained.leave("a")
        assert trained.state("a") is JobState.SUSPENDED
        assert not trained.row("a").state.final
        state = [event for event in trained.ledger.store.events(job="a", kinds=["state"])][-1]
        assert state.cause is not None
        assert trained.ledger.core.free() == (0, 1, 2)

    def test_one_that_waits_is_suspended_at_once_and_twice_is_once(self, play):
        for job in "abcd":
            play.submit(job, 1)
        assert play.suspend("d").state is JobState.SUSPENDED
        count = len(play.ledger.store.events())
        assert play.suspend("d").state is JobState.SUSPENDED
        assert len(play.ledger.store.events()) == count

    def test_between_two_trainings(self, trained):
        trained.say("a", control.TrainingEnded(training=0, updates=7))
        trained.leave("a")
        assert trained.suspend("a").state is JobState.SUSPENDED
        assert trained.resume("a").state is JobState.RUNNING, "its driver goes on, and needs no slot"
        assert trained.outcome.launches == ()


class TestResume:
    def test_a_job_whose_supervisor_lives_is_not_launched_again(self, trained):
        trained.suspend("a")
        trained.leave("a")
        trained.resume("a")
        assert (trained.state("a"), trained.outcome.launches) == (JobState.LAUNCHING, ())
        trained.form("a")
        assert trained.state("a") is JobState.RUNNING

    def test_it_waits_its_turn(self, trained):
        trained.suspend("a")
        trained.leave("a")
        for job in "bcd":
            trained.submit(job, 1)
        assert trained.resume("a").state is JobState.PENDING
        assert trained.row("a").message == ""
        trained.say("c", control.JobEnded(state=JobState.FINISHED, message=""))
        assert trained.state("a") is JobState.LAUNCHING
        assert {trained.state(job) for job in "bd"} == {JobState.LAUNCHING}

    def test_before_its_workers_have_left(self, trained):
        trained.suspend("a")
        assert trained.resume("a").state is JobState.RUNNING
        trained.leave("a")
        assert trained.state("a") is JobState.RUNNING
        assert sorted(trained.ledger.core.holding("a")) == [0, 1, 2]

    def test_before_its_workers_have_left_but_others_take_the_slots(self, trained):
        trained.suspend("a")
        for job in "bcd":
            trained.submit(job, 1)
        trained.resume("a")
        trained.leave("a")
        assert trained.state("a") is JobState.PENDING

    def test_one_that_was_not_suspended_stays_as_it_is(self, trained):
        count = len(trained.ledger.store.events())
        assert trained.resume("a").state is JobState.RUNNING
        assert len(trained.ledger.store.events()) == count

    @pytest.mark.parametrize("state", [JobState.KILLED, JobState.FAILED])
    def test_one_that_ended_comes_back_as_a_further_attempt(self, trained, state):
        trained.say("a", control.JobEnded(state=state, message="so it goes"))
        before = trained.row("a")
        assert before.ended is not None
        trained.resume("a")
        row = trained.row("a")
        assert (row.state, trained.outcome.launches) == (JobState.LAUNCHING, ("a",))
        assert (row.ended, row.message, row.attempt, row.started) == (None, "", before.attempt + 1, before.started)
        assert trained.workers("a") == [], "those of the former attempt are gone"
        assert trained.texts("a", "job_arrived")[-1] == "taken up again (by ann)"
        trained.train("a")
        assert trained.state("a") is JobState.RUNNING

    @pytest.mark.parametrize("state", [JobState.FINISHED, JobState.ERROR])
    def test_what_is_over_for_good_stays_so(self, trained, state):
        trained.say("a", control.JobEnded(state=state, message=""))
        with pytest.raises(Conflict, match="nothing to resume"):
            trained.resume("a")

    def test_what_never_trained_has_nothing_to_go_on_from(self, play):
        play.submit("a")
        play.say("a", control.JobEnded(state=JobState.FAILED, message=""))
        with pytest.raises(Conflict, match="never began to train"):
            play.resume("a")


class TestHold:
    @pytest.fixture
    def holding(self, trained):
        """Job "a" holds after three of 27 epochs, and has left its slots."""
        trained.budget("a", 3)
        assert trained.outcome.allocations["a"].budget == 3
        trained.say("a", control.BudgetReached(training=0, epoch=3, epochs=27))
        assert trained.outcome.allocations["a"].slots == ()
        assert trained.state("a") is JobState.RUNNING
        trained.leave("a")
        return trained

    def test_it_is_suspended_with_a_reason_and_goes_on_with_more_budget(self, holding):
        assert holding.state("a") is JobState.SUSPENDED
        assert holding.ledger.core.reason("a").text == "It has reached 3 of 27 epochs; its search decides."
        assert holding.ledger.core.free() == (0, 1, 2)
        assert holding.texts("a", "job_held") == ["holds: it has reached 3 of 27 epochs"]
        holding.budget("a", 9)
        assert holding.state("a") is JobState.LAUNCHING
        allocation = holding.outcome.allocations["a"]
        assert (len(allocation.slots), allocation.budget, holding.outcome.launches) == (3, 9, ())
        holding.form("a")
        assert holding.state("a") is JobState.RUNNING

    def test_nobody_leaves_when_there_is_more_budget_by_then(self, trained):
        trained.budget("a", 3)
        trained.budget("a", 9)
        count = len(trained.ledger.store.events())
        trained.say("a", control.BudgetReached(training=0, epoch=3, epochs=27))
        assert (trained.state("a"), len(trained.ledger.core.holding("a"))) == (JobState.RUNNING, 3)
        assert len(trained.ledger.store.events()) == count
        trained.say("a", control.BudgetReached(training=0, epoch=9, epochs=27))
        assert trained.ledger.core.held("a") == (9, 27)

    def test_before_its_workers_have_left(self, trained):
        trained.budget("a", 3)
        trained.say("a", control.BudgetReached(training=0, epoch=3, epochs=27))
        assert trained.budget("a", None).state is JobState.RUNNING
        trained.leave("a")
        assert trained.state("a") is JobState.RUNNING
        assert sorted(trained.ledger.core.holding("a")) == [0, 1, 2]

    def test_it_waits_its_turn(self, holding):
        for job in "bcd":
            holding.submit(job, 1)
        assert holding.budget("a", 9).state is JobState.PENDING

    def test_a_user_can_not_resume_it_and_can_suspend_it(self, holding):
        with pytest.raises(Conflict, match="3 of 27 epochs"):
            holding.resume("a")
        assert holding.suspend("a").state is JobState.SUSPENDED
        assert holding.budget("a", 9).state is JobState.SUSPENDED
        holding.resume("a")
        assert holding.state("a") is JobState.LAUNCHING

    def test_a_supervisor_that_is_lost_is_started_with_the_next_slot(self, holding):
        holding.lose("a")
        assert (holding.state("a"), holding.outcome.launches) == (JobState.SUSPENDED, ())
        holding.budget("a", 9)
        assert (holding.state("a"), holding.outcome.launches) == (JobState.LAUNCHING, ("a",))

    def test_a_supervisor_that_is_lost_before_the_slots_are_left(self, trained):
        trained.budget("a", 3)
        trained.say("a", control.BudgetReached(training=0, epoch=3, epochs=27))
        trained.lose("a")
        trained.leave("a")
        assert trained.state("a") is JobState.SUSPENDED

    def test_one_that_was_stopped_comes_back_with_its_budget(self, holding):
        holding.say("a", control.JobEnded(state=JobState.KILLED, message="Stopped."))
        holding.resume("a")
        assert holding.outcome.allocations["a"].budget == 3
        assert holding.state("a") is JobState.LAUNCHING

    def test_the_same_budget_changes_nothing_and_less_is_refused(self, trained):
        trained.budget("a", 3)
        count = len(trained.ledger.store.events())
        trained.budget("a", 3)
        assert len(trained.ledger.store.events()) == count
        with pytest.raises(Conflict, match="may train 3 epochs already"):
            trained.budget("a", 2)
        with pytest.raises(Unprocessable, match="at least one epoch"):
            trained.budget("a", 0)

    @pytest.mark.parametrize("framework", ["PyTorch", "distPyTorch", "torchrun"])
    def test_what_is_not_the_elastic_engine_cannot_hold(self, framework):
        spec = JobSpec(name="n", main="train.py", max_workers=1, framework=framework)
        suspension.check_budget(spec, None)
        with pytest.raises(Unprocessable, match=f"{framework} cannot hold at an epoch"):
            suspension.check_budget(spec, 3)

    def test_a_validation_cannot_hold(self):
        validates = Validates(training="a", training_name="digits", metrics=("accuracy",))
        registered = Registered(validates=validates)
        spec = JobSpec(name="n", main="train.py", max_workers=1, registered=registered)
        with pytest.raises(Unprocessable, match="no epochs"):
            suspension.check_budget(spec, 3)

    def test_each_validation_is_an_event(self, trained):
        validated = control.EpochValidated(training=0, epoch=1, loss=0.5, accuracy=0.75, metrics={"f1": 0.1})
        trained.say("a", validated)
        (event,) = trained.ledger.store.events(job="a", kinds=["validated"])
        assert event.data == {"training": 0, "epoch": 1, "loss": 0.5, "accuracy": 0.75, "metrics": {"f1": 0.1}}
        assert event.text == "validated after epoch 1: loss 0.5, accuracy 0.75, f1 0.1"


class TestCheckpoints:
    @pytest.mark.parametrize(
        ("name", "chosen"),
        [
            ("epoch-3", "epoch-3"),
            ("model_epoch_3", "epoch-3"),
            ("model_epoch_3.pth", "epoch-3"),
            ("epoch-3.ckpt", "epoch-3"),
            ("update-1200", "update-1200"),
        ],
    )
    def test_names_people_use(self, trained, name, chosen):
        checkpoint(trained, "a", chosen)
        trained.suspend("a")
        trained.leave("a")
        trained.resume("a", name)
        name, seq = trained.paths("a").resume_from.read_text().split()
        assert name == chosen
        assert int(seq) in [event.seq for event in trained.ledger.store.events(job="a", kinds=["job_resumed"])]
        assert trained.texts("a", "job_resumed") == [f"resumed (by ann), from checkpoint {chosen}"]

    @pytest.mark.parametrize(
        "name", ["../epoch-3", "epoch_3", "epoch-", "epoch-3\n", "final", "update-1.5", "/epoch-3"]
    )
    def test_names_that_are_none(self, trained, name):
        with pytest.raises(InvalidRequest):
            suspension.find(trained.paths("a"), name)

    def test_one_that_is_not_there_names_those_that_are(self, trained):
        checkpoint(trained, "a", "epoch-1")
        with pytest.raises(NotFound) as refused:
            suspension.find(trained.paths("a"), "epoch-2")
        assert "epoch-1" in refused.value.hint

    def test_only_the_newest_training_can_be_put_back(self, trained):
        checkpoint(trained, "a", "epoch-1")
        checkpoint(trained, "a", "epoch-2", training=1)
        assert suspension.find(trained.paths("a"), "epoch-2") == "epoch-2"
        with pytest.raises(NotFound):
            suspension.find(trained.paths("a"), "epoch-1")

    def test_not_while_workers_run(self, trained):
        checkpoint(trained, "a", "epoch-1")
        with pytest.raises(Conflict, match="while workers run"):
            trained.resume("a", "epoch-1")
        trained.suspend("a")
        with pytest.raises(Conflict, match="while workers run") as leaving:
            trained.resume("a", "epoch-1")
        assert "Wait" in leaving.value.hint
        assert not trained.paths("a").resume_from.exists()
        trained.leave("a")
        trained.resume("a", "epoch-1")
        assert trained.paths("a").resume_from.exists()

    @pytest.mark.parametrize("ended", [False, True])
    def test_a_request_that_was_not_committed_does_not_count(self, trained, ended):
        checkpoint(trained, "a", "epoch-1")
        if ended:
            trained.say("a", control.JobEnded(state=JobState.FAILED, message=""))
        else:
            trained.suspend("a")
            trained.leave("a")
        before = trained.state("a")
        with no_room_for_a_page(), pytest.raises(StoreUnavailable):
            trained.resume("a", "epoch-1")
        assert trained.state("a") is before
        assert trained.paths("a").resume_from.exists(), "the commit failed behind it"
        trained.submit("b", 1)  # takes the number that was rolled back
        trained.resume("a")
        assert trained.state("a") is JobState.LAUNCHING
        assert not trained.paths("a").resume_from.exists()

    def test_one_that_was_committed_counts_until_a_worker_has_seen_it(self, trained):
        checkpoint(trained, "a", "epoch-1")
        for name in ("epoch-1", ""):
            trained.suspend("a")
            trained.leave("a")
            trained.resume("a", name)
            assert trained.paths("a").resume_from.read_text().startswith("epoch-1\n")

    def test_one_that_failed_goes_back_too(self, trained):
        checkpoint(trained, "a", "epoch-1")
        trained.say("a", control.JobEnded(state=JobState.FAILED, message=""))
        trained.resume("a", "epoch-1")
        assert trained.texts("a", "job_arrived")[-1] == "taken up again (by ann), from checkpoint epoch-1"
