"""Workers, drivers and supervisors that are lost, as changes of a ledger: no processes."""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.job import JobProgress, JobState
from edt_sdk.schemas.wire import control
from edt_server.core.events import SlotsChanged
from edt_server.history.picture_data import marks_of
from edt_server.ledger.recovery import MOST_LOST_HOSTS


class TestLostWorkers:
    LOST = control.WorkerLost(
        worker=1, slot=1, pid=101, exit_code=-9, member=True, update=12, why="Worker 1 (slot 1) was killed by SIGKILL."
    )

    def test_a_member_that_is_lost_is_recovered_from(self, trained):
        assert trained.workers("a") == [0, 1, 2]
        trained.say("a", self.LOST)
        assert trained.state("a") is JobState.RECOVERING
        assert trained.row("a").message == self.LOST.why
        assert trained.workers("a") == [0, 2]
        assert trained.texts("a", "worker_lost") == [
            "worker 1 (slot 1) was killed by SIGKILL; the training goes on after update 12"
        ]
        trained.form("a")
        assert (trained.state("a"), trained.row("a").message) == (JobState.RUNNING, "")

    def test_one_that_was_no_member_yet_changes_no_state(self, trained):
        trained.say("a", msgspec.structs.replace(self.LOST, member=False))
        assert trained.state("a") is JobState.RUNNING

    def test_the_last_one_may_die_when_all_is_trained(self, trained):
        trained.say("a", self.LOST)
        trained.say("a", control.TrainingEnded(training=0, updates=13))
        assert trained.state("a") is JobState.RUNNING

    def test_a_driver_is_told_of(self, trained):
        trained.say("a", control.DriverLost(pid=9, exit_code=-9, why="The driver was killed by SIGKILL."))
        assert trained.state("a") is JobState.RUNNING
        assert trained.texts("a", "driver_lost") == ["the driver was killed by SIGKILL; its main script runs again"]


class TestLostSupervisors:
    def test_the_next_attempt_has_the_same_slots(self, trained):
        progress = JobProgress(update=7)
        trained.lose("a", progress=progress)
        assert (trained.state("a"), trained.outcome.launches) == (JobState.RECOVERING, ("a",))
        row = trained.row("a")
        assert (row.attempt, row.progress, row.ended) == (2, progress, None)
        assert len(trained.ledger.core.holding("a")) == 3
        assert trained.workers("a") == []
        trained.form("a")
        assert trained.state("a") is JobState.RUNNING

    def test_one_whose_job_moves_to_another_host_is_not_said_to_be_lost(self, trained):
        there = (control.Slot(id=7, host="b"), control.Slot(id=8, host="c"), control.Slot(id=9, host="c"))
        trained.do(lambda change: change.apply(SlotsChanged(there)))
        trained.leave("a")
        trained.say("a", control.Relocated(host="h"))
        trained.lose("a")
        assert trained.texts("a", "supervisor_lost") == ["moved to host c"]
        assert (trained.state("a"), trained.row("a").message) == (JobState.RECOVERING, "It moves to another host.")
        moved, lost = trained.ledger.store.events(job="a", kinds=["supervisor_lost"]), "ended unexpectedly"
        assert not [mark for mark in marks_of(moved) if mark.kind == "failure"]
        trained.lose("a")
        assert lost in trained.texts("a", "supervisor_lost")[1]

    def test_three_that_came_to_nothing_fail_the_job(self, trained):
        trained.lose("a")  # this one had trained
        for _ in range(2):
            trained.lose("a")
            assert trained.state("a") is JobState.RECOVERING
        trained.lose("a")
        assert (trained.state("a"), trained.ledger.core.free()) == (JobState.FAILED, (0, 1, 2))
        assert trained.row("a").message.endswith("\nKilled")
        trained.resume("a")
        trained.lose("a")
        assert trained.state("a") is JobState.RECOVERING, "a person wanted it tried anew"

    def test_lost_hosts_are_no_fault_of_the_job_until_there_are_many(self, trained):
        trained.lose("a")  # this one had trained
        for _ in range(MOST_LOST_HOSTS - 1):
            trained.lose("a", host="b")
            assert trained.state("a") is JobState.RECOVERING
        assert "was lost with host b" in trained.texts("a", "supervisor_lost")[-1]
        trained.lose("a", host="b")
        assert trained.state("a") is JobState.FAILED
        assert trained.row("a").message.startswith(f"It lost its host {MOST_LOST_HOSTS} times in a row")

    def test_any_fruit_begins_the_count_anew(self, trained):
        for _ in range(4):
            trained.lose("a")
            trained.lose("a")
            trained.form("a")
        assert trained.state("a") is JobState.RUNNING

    def test_one_that_was_to_be_stopped_is(self, trained):
        trained.lose("a", stopping="Stopped by ann.")
        assert (trained.state("a"), trained.row("a").message) == (JobState.KILLED, "Stopped by ann.")

    def test_a_suspended_job_is_launched_when_it_is_resumed(self, trained):
        trained.suspend("a")
        trained.leave("a")
        trained.lose("a")
        assert (trained.state("a"), trained.outcome.launches) == (JobState.SUSPENDED, ())
        assert not trained.row("a").supervised
        trained.resume("a")
        assert (trained.state("a"), trained.outcome.launches) == (JobState.LAUNCHING, ("a",))

    def test_one_that_is_being_suspended_gets_another_that_sees_its_workers_off(self, trained):
        trained.suspend("a")
        trained.lose("a")
        assert (trained.state("a"), trained.outcome.launches) == (JobState.RECOVERING, ("a",))
        trained.leave("a")
        assert trained.state("a") is JobState.SUSPENDED

    def test_between_two_trainings_its_script_begins_in_a_slot_again(self, trained):
        trained.say("a", control.TrainingEnded(training=0, updates=7))
        trained.leave("a")
        trained.lose("a")
        assert (trained.state("a"), trained.outcome.launches) == (JobState.RECOVERING, ("a",))
        assert len(trained.ledger.core.holding("a")) == 1

    def test_one_that_waits_for_a_slot_is_launched_with_it(self, trained):
        trained.suspend("a")
        trained.leave("a")
        for job in "bcd":
            trained.submit(job, 1)
        trained.resume("a")
        trained.lose("a")
        assert (trained.state("a"), trained.outcome.launches) == (JobState.PENDING, ())
        trained.say("b", control.JobEnded(state=JobState.FINISHED, message=""))
        assert (trained.state("a"), trained.outcome.launches) == (JobState.LAUNCHING, ("a",))
