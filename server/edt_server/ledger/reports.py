"""Turn the reports of supervisors into rows, events and inputs of the core.

A report is taken once: its number is stored in the same transaction as its result, and a known number changes nothing.
Runs inside `Ledger.change` and acts on nothing.
"""

from __future__ import annotations

import logging

import msgspec

from edt_sdk.schemas import events
from edt_sdk.schemas.errors import Conflict
from edt_sdk.schemas.job import JobProgress, JobState
from edt_sdk.schemas.wire import control
from edt_server.core.events import JobApart, JobDemand, JobGone, JobHeld, SlotReleased
from edt_server.ledger.ledger import ANY, Change
from edt_server.ledger.suspension import settle

log = logging.getLogger(__name__)


def take(change: Change, job: str, numbered: control.Numbered, progress: JobProgress | None = None) -> bool:
    """Take one report of `job`, with the newest progress known. False when it was taken before.

    Conflict, and nothing has changed, when an earlier report is missing.
    """
    row = change.row(job)
    if numbered.number <= row.last_report:
        return False
    if numbered.number > row.last_report + 1:
        raise Conflict(f"Report {numbered.number} of job {job} came after report {row.last_report}.", job=job)
    if not row.state.final:
        # The supervisor's clock may have been set back, or be another machine's.
        _record(change, job, row.state, numbered.report, max(numbered.time, row.state_since))
    if isinstance(numbered.report, control.JobEnded):
        progress = numbered.report.progress or progress
    if progress is not None:
        store_progress(change, job, progress)
    change.tx.update_job(job, last_report=numbered.number)
    return True


def store_progress(change: Change, job: str, progress: JobProgress) -> None:
    """Store the newest progress. The first that says that the job is not exact becomes a line of its story."""
    row = change.tx.job(job)
    if row is None:
        return
    before = "" if row.progress is None else row.progress.inexact
    if before:
        # Not exact once, not exact for good, though the present rank 0 has not seen it.
        progress = msgspec.structs.replace(progress, inexact=before)
    elif progress.inexact:
        change.append(events.REMARK, job, {"text": f"Not exact. {progress.inexact}"})
    change.tx.update_job(job, progress=progress)


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


def set_apart(change: Change, job: str, hosts: tuple[str, ...], why: str) -> None:
    """Let the job have no slots of these hosts from now on, because its others do not reach them: `why`."""
    change.apply(JobApart(job, hosts, why))


# Reports that are events of the job's story, with the fields of their message as data.
_EVENTS: dict[type, str] = {
    control.DriverStarted: events.DRIVER_STARTED,
    control.TrainingStarted: events.TRAINING_STARTED,
    control.TrainingEnded: events.TRAINING_ENDED,
    control.EpochValidated: events.VALIDATED,
    control.WorkerStarted: events.WORKER_STARTED,
    control.WorkerLost: events.WORKER_LOST,
    control.DriverLost: events.DRIVER_LOST,
    control.GenerationFormed: events.GENERATION,
    control.RunStarted: events.RUN_STARTED,
    control.RunStopped: events.RUN_STOPPED,
    control.Relocated: events.RELOCATED,
}


def _record(change: Change, job: str, state: JobState, report: control.Report, time: float) -> None:
    kind = _EVENTS.get(type(report))
    seq = None if kind is None else change.append(kind, job, msgspec.structs.asdict(report), time=time)
    match report:
        case control.TrainingStarted(shards=shards):
            change.tx.update_job(job, shards=shards)
            change.apply(JobDemand(job, shards), cause=seq)
        case control.TrainingScaled(workers=workers):
            change.apply(JobDemand(job, workers))
        case control.SizeHeld(workers=workers, why=why):
            change.apply(JobDemand(job, workers if why else ANY, why), cause=seq)
            if why:
                change.append(events.REMARK, job, {"text": why}, time=time)
        case control.TrainingEnded():
            change.apply(JobDemand(job, 0), cause=seq)
            if state is JobState.RECOVERING:  # its last worker died with nothing left to train
                change.set_state(job, JobState.RUNNING, cause=seq, time=time)
        case control.BudgetReached(epoch=epoch, epochs=epochs) if change.core.holds_at(job, epoch):
            seq = change.apply(JobHeld(job, epoch, epochs))
            settle(change, job, cause=seq)
        case control.GenerationFormed() | control.RunStarted():
            if state in (JobState.LAUNCHING, JobState.RECOVERING):
                change.set_state(job, JobState.RUNNING, cause=seq, time=time)
        case control.WorkerLost(member=True, why=why) if state is JobState.RUNNING:
            change.set_state(job, JobState.RECOVERING, why, cause=seq, time=time)
        case control.RunStopped(why=why) if state is JobState.RUNNING and change.core.holding(job):
            change.set_state(job, JobState.RECOVERING, why, cause=seq, time=time)
        case control.SlotReturned(slot=slot, worker=worker, exit_code=exit_code):
            release(change, job, slot, worker, exit_code)
        case control.JobEnded(state=ended, message=message):
            end(change, job, ended if ended.final else JobState.FAILED, message, time=time)
