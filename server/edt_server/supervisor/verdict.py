"""What the end of a process means for its job. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.schemas.job import JobState
from edt_server.supervisor import wording
from edt_server.supervisor.events import Exited
from edt_server.supervisor.roster import Driver, DriverPhase, Phase, Worker


@dataclass(frozen=True, slots=True)
class Past:
    """What a job has done by now.

    Attributes:
        running: number of the training under way, None between trainings.
        trainings, updates: of the finished ones.
    """

    interpreter: str
    running: int | None
    trainings: int
    updates: int


@dataclass(frozen=True, slots=True)
class Cause:
    """A possible cause of a job's failure; `silent` when the process died without a word."""

    message: str
    silent: bool


def driver_verdict(driver: Driver, event: Exited, past: Past) -> tuple[JobState, str]:
    """How the job ends when its driver has ended, as far as that was not decided before."""
    who = "The main script"
    if driver.phase is not DriverPhase.TALKING:
        return JobState.ERROR, wording.never_spoke("The driver", past.interpreter, event.code, event.words)
    if driver.failed is not None:
        message = wording.failure(driver.failed.message, "", event.words, driver.failed.traceback)
    elif driver.lost and not event.by_itself:
        message = wording.failure(who, wording.lost_link(driver.lost), event.words)
    elif event.code != 0:
        message = wording.failure(who, wording.how_it_ended(event.code), event.words)
    elif past.running is not None:
        message = wording.failure(who, f"ended while training {past.running} was running.", event.words)
    elif past.trainings == 0:
        message = wording.never_trained(event.words)
    else:
        return JobState.FINISHED, wording.finished(past.trainings, past.updates)
    return JobState.FAILED, message


def worker_cause(worker: Worker, name: str, event: Exited) -> Cause | None:
    """What a worker's end says of the job's failure, None when the supervisor itself ended it."""
    silent = False
    if worker.failed is not None:
        what = f"failed: {worker.failed.message}"
    elif worker.lost and not event.by_itself and worker.phase is not Phase.ENDING:
        what = wording.lost_link(worker.lost)
    elif not event.by_itself:
        return None
    elif event.code == 0:
        what = "ended with exit code 0 before the training was finished."
    else:
        what, silent = wording.how_it_ended(event.code), True
    traceback = worker.failed.traceback if worker.failed is not None else ""
    return Cause(wording.failure(name, what, event.words, traceback), silent)
