"""Decide what the exit of a process means: a replacement, or the end of the job. Pure.

It judges each worker that exited where it should not have, and the driver. It counts the exit (`attempts`) and finds
the message.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire.control import DriverLost, WorkerLost
from edt_server.supervisor.state_machines import wording
from edt_server.supervisor.state_machines.attempts import Attempts, DeathCause
from edt_server.supervisor.state_machines.events import Exited
from edt_server.supervisor.state_machines.generation import TrainingRun
from edt_server.supervisor.state_machines.worker_group import Driver, DriverPhase, Worker, WorkerPhase

# The exit code that a shell reports for a program that does not exist.
_NEVER_RAN = 127
# Signals that a program's own code raises: a broken extension, an assertion, a stack that is too deep.
CRASH_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


@dataclass(frozen=True, slots=True)
class Fatal:
    """The job ends because of this exit. `silent` means that the process died without reporting an error."""

    state: JobState
    message: str
    silent: bool


@dataclass(frozen=True, slots=True)
class Past:
    """What a job has done: its finished trainings and their updates, and the number of the training under way."""

    interpreter: str
    running: int | None
    trainings: int
    updates: int


def judge(worker: Worker, event: Exited, *, training: TrainingRun | None, attempts: Attempts) -> WorkerLost | Fatal:
    """Judge a worker that died. `training` still counts it among its members if it was a member."""
    kind, name = end_kind(worker, event), name_of(worker, training)
    times = _times(worker, kind, training, attempts)
    if not times:
        return _replaced(worker, event.code, loss(worker, name, event), attempts)
    return worker_cause(worker, name, event, times) or Fatal(JobState.FAILED, loss(worker, name, event), silent=False)


def judge_driver(driver: Driver, event: Exited, past: Past, attempts: Attempts, *, wanted: bool) -> DriverLost | Fatal:
    """Judge the driver's exit. Its script runs again if it was killed from outside and is still `wanted`."""
    who, times = "The main script", 1
    # Killed from outside: its script neither failed nor finished.
    if wanted and event.code < 0 and not event.signals and driver.failed is None:
        times = attempts.driver_ended()
        if not times:
            why = wording.failure(who, wording.how_it_ended(event.code), None)
            return DriverLost(pid=driver.pid, exit_code=event.code, why=why)
    if driver.phase is not DriverPhase.TALKING and past.running is None and past.trainings == 0:
        why = wording.never_spoke("The driver", past.interpreter, event.code, event.words)
        return Fatal(JobState.ERROR, why, silent=True)
    if driver.failed is not None:
        message = wording.failure(driver.failed.message, "", event.words, driver.failed.traceback)
    elif driver.lost and not event.by_itself:
        message = wording.failure(who, wording.lost_link(driver.lost), event.words)
    elif event.code != 0:
        message = wording.failure(who, wording.how_it_ended(event.code), event.words, times=times)
    elif past.running is not None:
        message = wording.failure(who, f"ended while training {past.running} was running.", event.words)
    elif past.trainings == 0:
        message = wording.never_trained(event.words)
    else:
        return Fatal(JobState.FINISHED, wording.finished(past.trainings, past.updates), silent=True)
    return Fatal(JobState.FAILED, message, silent=True)


def not_started(worker: Worker, why: str, *, training: TrainingRun | None, attempts: Attempts) -> WorkerLost | Fatal:
    """Judge a worker without a process: the system could not create it."""
    sentence = f"{name_of(worker, training)} could not be started: {why}"
    if _times(worker, DeathCause.OWN, training, attempts):
        return Fatal(JobState.FAILED, sentence, silent=False)
    return _replaced(worker, _NEVER_RAN, sentence, attempts)


def name_of(worker: Worker, training: TrainingRun | None) -> str:
    """Return the worker as the subject of a sentence."""
    rank = training.rank(worker.number) if training is not None else None
    return wording.worker_name(worker.number, rank, worker.slot.id)


def _times(worker: Worker, kind: DeathCause, training: TrainingRun | None, attempts: Attempts) -> int:
    final = worker.failed is not None and worker.failed.final
    # A member's death breaks the generation for all, so all members share one limit. Others are counted by slot.
    if training is not None and worker.phase is WorkerPhase.MEMBER:
        return attempts.member_ended(kind, training.generation, final=final)
    alone = training is None or not training.members
    return attempts.outsider_ended(kind, worker.slot.id, alone=alone, final=final)


def _replaced(worker: Worker, code: int, why: str, attempts: Attempts) -> WorkerLost:
    return WorkerLost(
        worker=worker.number,
        slot=worker.slot.id,
        pid=worker.pid,
        exit_code=code,
        member=worker.phase is WorkerPhase.MEMBER,
        update=attempts.committed,
        why=why,
    )


def end_kind(worker: Worker, event: Exited) -> DeathCause:
    """Return whether the worker's own code ended it."""
    if worker.failed is not None:
        return DeathCause.OWN
    if worker.hung_by_itself:
        return DeathCause.HANG
    if worker.hung or not event.by_itself:
        return DeathCause.OUTSIDE
    return DeathCause.OWN if event.code >= 0 or -event.code in CRASH_SIGNALS else DeathCause.OUTSIDE


def worker_cause(worker: Worker, name: str, event: Exited, times: int = 1) -> Fatal | None:
    """Return the end of the job that a worker's exit causes, None when the supervisor itself ended the worker."""
    what = _predicate(worker, event)
    if what is None:
        return None
    silent = worker.failed is None and event.by_itself and event.code != 0
    traceback = worker.failed.traceback if worker.failed is not None else ""
    hint = ""
    if worker.hung:
        what += " and was killed"
        hint = wording.HUNG if worker.hung_by_itself else ""
    message = wording.failure(name, what, event.words, traceback, times=times, hint=hint)
    return Fatal(JobState.FAILED, message, silent)


def loss(worker: Worker, name: str, event: Exited) -> str:
    """Return the sentence about a worker that will be replaced."""
    if worker.hung:
        return wording.failure(name, f"{worker.hung} and was replaced", None)
    return wording.failure(name, _predicate(worker, event) or wording.how_it_ended(event.code), None)


def _predicate(worker: Worker, event: Exited) -> str | None:
    if worker.failed is not None:
        return f"failed: {worker.failed.message}"
    if worker.hung:
        return worker.hung
    if worker.lost and not event.by_itself and worker.phase is not WorkerPhase.ENDING:
        return wording.lost_link(worker.lost)
    if not event.by_itself:
        return None
    if event.code == 0:
        return "ended with exit code 0 before the training was finished."
    return wording.how_it_ended(event.code)
