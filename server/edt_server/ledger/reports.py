"""Turn the reports of supervisors into rows, events and inputs of the core.

A report is taken once: its number is stored in the same transaction as its result, and a known number changes nothing.
Runs inside `Ledger.change` and acts on nothing.
"""

from __future__ import annotations

import logging

from edt_sdk.schemas import events
from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.job import JobProgress, JobState
from edt_sdk.schemas.wire import control
from edt_server.core.events import JobDemand, JobGone, SlotReleased
from edt_server.ledger.ledger import Change
from edt_server.ledger.suspension import settle

log = logging.getLogger(__name__)


def take(change: Change, job: str, numbered: control.Numbered, progress: JobProgress | None = None) -> bool:
    """Take one report of `job`, with the newest progress known. False when it was taken before.

    Raises:
        Conflict: an earlier report is missing. Nothing is changed.
    """
    row = change.row(job)
    if numbered.number <= row.last_report:
        return False
    if numbered.number > row.last_report + 1:
        raise Conflict(f"Report {numbered.number} of job {job} came after report {row.last_report}.", job=job)
    if not row.state.final:
        _record(change, job, numbered.report, numbered.time)
    changes = {} if progress is None else {"progress": progress}
    change.tx.update_job(job, last_report=numbered.number, **changes)
    return True


def end(change: Change, job: str, state: JobState, message: str, *, time: float | None = None) -> None:
    """End the job: release its slots and set a final state."""
    seq = change.apply(JobGone(job)) if job in change.core.jobs else None
    change.set_state(job, state, message, cause=seq, time=time)


def release(change: Change, job: str, slot: int, worker: int | None, exit_code: int | None) -> None:
    """Release a slot of the job, if the job still has it."""
    if slot in (*change.core.holding(job), *change.core.leaving(job)):
        seq = change.apply(SlotReleased(job, slot), worker=worker, exit_code=exit_code)
        settle(change, job, cause=seq)
    else:
        log.warning("slot %d was released twice, job=%s", slot, job)


def _record(change: Change, job: str, report: control.Report, time: float) -> None:
    match report:
        case control.DriverStarted(pid=pid):
            change.append(events.DRIVER_STARTED, job, {"pid": pid}, time=time)
        case control.TrainingStarted(training=training, shards=shards, epochs=epochs):
            data = {"training": training, "shards": shards, "epochs": epochs}
            seq = change.append(events.TRAINING_STARTED, job, data, time=time)
            change.tx.update_job(job, shards=shards)
            change.apply(JobDemand(job, shards), cause=seq)
        case control.TrainingScaled(workers=workers):
            change.apply(JobDemand(job, workers))
        case control.TrainingEnded(training=training, updates=updates):
            data = {"training": training, "updates": updates}
            seq = change.append(events.TRAINING_ENDED, job, data, time=time)
            change.apply(JobDemand(job, 0), cause=seq)
            if change.row(job).state is JobState.RECOVERING:  # its last worker died with nothing left to train
                change.set_state(job, JobState.RUNNING, cause=seq, time=time)
        case control.WorkerStarted(worker=worker, slot=slot, pid=pid):
            change.append(events.WORKER_STARTED, job, {"worker": worker, "slot": slot, "pid": pid}, time=time)
        case control.WorkerLost():
            _worker_lost(change, job, report, time)
        case control.DriverLost(pid=pid, exit_code=exit_code, why=why):
            change.append(events.DRIVER_LOST, job, {"pid": pid, "exit_code": exit_code, "why": why}, time=time)
        case control.GenerationFormed():
            _generation(change, job, report, time)
        case control.RunStarted():
            _run_started(change, job, report, time)
        case control.RunStopped(number=number, why=why):
            seq = change.append(events.RUN_STOPPED, job, {"number": number, "why": why}, time=time)
            if change.core.holding(job) and change.row(job).state is JobState.RUNNING:
                change.set_state(job, JobState.RECOVERING, why, cause=seq, time=time)
        case control.SlotReturned(slot=slot, worker=worker, exit_code=exit_code):
            release(change, job, slot, worker, exit_code)
        case control.JobEnded(state=state, message=message):
            end(change, job, state if state.final else JobState.FAILED, message, time=time)


def _worker_lost(change: Change, job: str, report: control.WorkerLost, time: float) -> None:
    data = {
        "worker": report.worker,
        "slot": report.slot,
        "pid": report.pid,
        "exit_code": report.exit_code,
        "member": report.member,
        "update": report.update,
        "why": report.why,
    }
    seq = change.append(events.WORKER_LOST, job, data, time=time)
    if report.member and change.row(job).state is JobState.RUNNING:
        change.set_state(job, JobState.RECOVERING, report.why, cause=seq, time=time)


def _generation(change: Change, job: str, report: control.GenerationFormed, time: float) -> None:
    data = {
        "training": report.training,
        "number": report.number,
        "workers": report.workers,
        "slots": report.slots,
        "pids": report.pids,
        "update": report.update,
    }
    _runs(change, job, change.append(events.GENERATION, job, data, time=time), time)


def _run_started(change: Change, job: str, report: control.RunStarted, time: float) -> None:
    data = {"number": report.number, "workers": report.workers, "slots": report.slots, "pids": report.pids}
    _runs(change, job, change.append(events.RUN_STARTED, job, data, time=time), time)


def _runs(change: Change, job: str, cause: int, time: float) -> None:
    if change.row(job).state in (JobState.LAUNCHING, JobState.RECOVERING):
        change.set_state(job, JobState.RUNNING, cause=cause, time=time)
