"""What the death of a process means: another one in its place, or the end of the job. Pure.

Asked about each worker that ended where it should not have, and about the driver. Counts it (`attempts`) and finds the
words.
"""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire.control import DriverLost, WorkerLost
from edt_server.supervisor.machines import wording
from edt_server.supervisor.machines.attempts import Attempts, Kind
from edt_server.supervisor.machines.events import Exited
from edt_server.supervisor.machines.generation import Training
from edt_server.supervisor.machines.roster import Driver, Phase, Worker
from edt_server.supervisor.machines.verdict import Past, driver_verdict, driver_was_killed, end_kind, loss, worker_cause

# What a shell says of a program that is not there.
_NEVER_RAN = 127


@dataclass(frozen=True, slots=True)
class Fatal:
    """The job ends of it; `silent`: the process died without a word."""

    state: JobState
    message: str
    silent: bool


def judge(worker: Worker, event: Exited, *, training: Training | None, attempts: Attempts) -> WorkerLost | Fatal:
    """About a worker that died; `training` still counts it among its members if it was one."""
    kind, name = end_kind(worker, event), name_of(worker, training)
    times = _times(worker, kind, training, attempts)
    if not times:
        return _replaced(worker, event.code, loss(worker, name, event), attempts)
    cause = worker_cause(worker, name, event, times)
    if cause is None:
        return Fatal(JobState.FAILED, loss(worker, name, event), silent=False)
    return Fatal(JobState.FAILED, cause.message, cause.silent)


def could_not_start(worker: Worker, event: Exited, *, interpreter: str) -> Fatal:
    """About one that ended by itself before its hello, in a job that never trained: its Python is not right."""
    what = wording.never_spoke(name_of(worker, None), interpreter, event.code, event.words)
    return Fatal(JobState.ERROR, what, silent=True)


def judge_driver(driver: Driver, event: Exited, past: Past, attempts: Attempts, *, wanted: bool) -> DriverLost | Fatal:
    """About the driver's end; its script is run again where that was not its own, and `wanted` any more."""
    times = 1
    if wanted and driver_was_killed(driver, event):
        times = attempts.driver_ended()
        if not times:
            why = wording.failure("The main script", wording.how_it_ended(event.code), None)
            return DriverLost(pid=driver.pid, exit_code=event.code, why=why)
    state, message = driver_verdict(driver, event, past, times)
    return Fatal(state, message, silent=True)


def not_started(worker: Worker, why: str, *, training: Training | None, attempts: Attempts) -> WorkerLost | Fatal:
    """About a worker whose process could not be made at all."""
    sentence = f"{name_of(worker, training)} could not be started: {why}"
    if _times(worker, Kind.OWN, training, attempts):
        return Fatal(JobState.FAILED, sentence, silent=False)
    return _replaced(worker, _NEVER_RAN, sentence, attempts)


def name_of(worker: Worker, training: Training | None) -> str:
    """The worker as the subject of a sentence."""
    rank = training.rank(worker.number) if training is not None else None
    return wording.worker_name(worker.number, rank, worker.slot.id)


def _times(worker: Worker, kind: Kind, training: Training | None, attempts: Attempts) -> int:
    final = worker.failed is not None and worker.failed.final
    if training is not None and worker.phase is Phase.MEMBER:
        return attempts.member_ended(kind, training.generation, final=final)
    alone = training is None or not training.members
    return attempts.outsider_ended(kind, worker.slot.id, alone=alone, final=final)


def _replaced(worker: Worker, code: int, why: str, attempts: Attempts) -> WorkerLost:
    return WorkerLost(
        worker=worker.number,
        slot=worker.slot.id,
        pid=worker.pid,
        exit_code=code,
        member=worker.phase is Phase.MEMBER,
        update=attempts.committed,
        why=why,
    )
