"""Reports of a supervisor against a ledger alone, without processes: each counts once, and moves state and slots."""

from __future__ import annotations

import time

import msgspec
import pytest

from edt_sdk.schemas import events
from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.job import JobProgress, JobState
from edt_sdk.schemas.wire import control
from edt_server.core.events import SlotsChanged
from edt_server.jobs import submission
from edt_server.ledger import reports
from edt_server.ledger.ledger import Ledger
from edt_server.system.interpreters import Interpreter
from tests.server.core.invariants import check
from tests.server.service.running import spec


class Taking:
    """What becomes of the reports of one job."""

    def __init__(self, ledger, job):
        self.ledger, self.job = ledger, job

    def report(self, number, report):
        numbered = control.Numbered(number=number, time=time.time(), report=report)
        return self.ledger.change(lambda change: reports.take(change, self.job, numbered))


@pytest.fixture
def taking(settings, package):
    """A ledger with a job on the first of three slots."""
    settings.data_dir.mkdir(exist_ok=True)
    ledger = Ledger.open(settings.store_url)
    slots = tuple(control.Slot(id=k, host="h") for k in range(3))
    ledger.change(lambda change: change.apply(SlotsChanged(slots)))
    accepted = submission.place(settings, "ann", spec(max_workers=3), package, Interpreter("/python", "3", True), 1)
    _, outcome = ledger.change(accepted.enter)
    assert outcome.launches == (accepted.job,)
    yield Taking(ledger, accepted.job)
    ledger.close()


def test_a_job_grows_when_it_trains_and_gives_back_when_it_does_not(taking):
    taken, outcome = taking.report(1, control.TrainingStarted(training=0, shards=2, epochs=1))
    assert taken
    assert [slot.id for slot in outcome.allocations[taking.job].slots] == [0, 1]  # V caps the maximum of 3
    assert taking.ledger.row(taking.job).shards == 2
    generation = control.GenerationFormed(training=0, number=1, workers=(0,), slots=(0,), pids=(1,), update=0)
    _, outcome = taking.report(2, generation)
    assert [(row.state, before) for row, before in outcome.states] == [(JobState.RUNNING, JobState.LAUNCHING)]
    _, outcome = taking.report(3, control.TrainingEnded(training=0, updates=7))
    assert outcome.allocations[taking.job].slots == ()
    _, outcome = taking.report(4, control.SlotReturned(slot=0, worker=0, exit_code=0))
    assert taking.ledger.core.leaving(taking.job) == (1,)


def test_a_job_that_is_not_exact_is_told_so_once_and_stays_so(taking):
    found = JobProgress(update=2, inexact="In update 2, the loss differs.")
    for update in (2, 3):
        progress = msgspec.structs.replace(found, update=update)
        taking.ledger.change(lambda change, progress=progress: reports.store_progress(change, taking.job, progress))
    assert taking.ledger.row(taking.job).progress == progress
    remarks = [event.text for event in taking.ledger.store.events() if event.kind == events.REMARK]
    assert remarks == ["Not exact. In update 2, the loss differs"]


def test_versions_of_allocations_grow(taking):
    _, first = taking.report(1, control.TrainingStarted(training=0, shards=3, epochs=1))
    _, second = taking.report(2, control.TrainingEnded(training=0, updates=7))
    assert first.allocations[taking.job].version < second.allocations[taking.job].version


def test_a_report_counts_once_and_none_may_be_missing(taking):
    taking.report(1, control.DriverStarted(pid=1))
    count = len(taking.ledger.store.events())
    assert taking.report(1, control.DriverStarted(pid=1))[0] is False
    assert len(taking.ledger.store.events()) == count
    with pytest.raises(Conflict):
        taking.report(3, control.DriverStarted(pid=1))
    assert taking.ledger.row(taking.job).last_report == 1


def test_a_slot_released_twice_is_free_once(taking):
    for number in (1, 2):
        taking.report(number, control.SlotReturned(slot=0, worker=0, exit_code=1))
    taking.report(3, control.SlotReturned(slot=2, worker=None, exit_code=None))
    check(taking.ledger.core)
    assert taking.ledger.row(taking.job).last_report == 3


def test_the_end_frees_everything_and_is_final(taking):
    ledger = taking.ledger
    taking.report(1, control.TrainingStarted(training=0, shards=3, epochs=1))
    _, outcome = taking.report(2, control.JobEnded(state=JobState.FINISHED, message=""))
    assert (ledger.row(taking.job).state, ledger.core.jobs, ledger.core.free()) == (
        JobState.FINISHED,
        (),
        (0, 1, 2),
    )
    assert outcome.allocations == {}
    taking.report(3, control.TrainingStarted(training=1, shards=3, epochs=1))
    assert (ledger.row(taking.job).state, ledger.row(taking.job).last_report) == (JobState.FINISHED, 3)
    assert Ledger(ledger.store, ledger._plan).core.digest() == ledger.core.digest()
