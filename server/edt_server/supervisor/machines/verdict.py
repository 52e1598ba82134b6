"""What the end of a process means for its job. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from edt_sdk.schemas.job import JobState
from edt_server.supervisor.machines import wording
from edt_server.supervisor.machines.attempts import Kind
from edt_server.supervisor.machines.events import Exited
from edt_server.supervisor.machines.roster import Driver, DriverPhase, Phase, Worker

# Signals that a program's own code raises: a broken extension, an assertion, a stack that is too deep.
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


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


def driver_was_killed(driver: Driver, event: Exited) -> bool:
    """True when somebody else ended the driver: its script neither failed nor came to its end."""
    return event.code < 0 and not event.signals and driver.failed is None


def driver_verdict(driver: Driver, event: Exited, past: Past, times: int = 1) -> tuple[JobState, str]:
    """How the job ends when its driver has ended (`times` in a row), as far as that was not decided before."""
    who = "The main script"
    if driver.phase is not DriverPhase.TALKING and past.running is None and past.trainings == 0:
        return JobState.ERROR, wording.never_spoke("The driver", past.interpreter, event.code, event.words)
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
        return JobState.FINISHED, wording.finished(past.trainings, past.updates)
    return JobState.FAILED, message


def end_kind(worker: Worker, event: Exited) -> Kind:
    """Whether the worker's own code ended it, where it should not have ended."""
    if worker.failed is not None:
        return Kind.OWN
    if worker.hung or not event.by_itself:
        return Kind.OUTSIDE
    return Kind.OWN if event.code >= 0 or -event.code in _CRASHES else Kind.OUTSIDE


def worker_cause(worker: Worker, name: str, event: Exited, times: int = 1) -> Cause | None:
    """What a worker's end says of the job's failure, None when the supervisor itself ended it."""
    what = _predicate(worker, event)
    if what is None:
        return None
    silent = worker.failed is None and event.by_itself and event.code != 0
    traceback = worker.failed.traceback if worker.failed is not None else ""
    if worker.hung:
        what += " and was killed"
    return Cause(wording.failure(name, what, event.words, traceback, times=times), silent)


def loss(worker: Worker, name: str, event: Exited) -> str:
    """The one sentence about a worker that will be replaced."""
    if worker.hung:
        return wording.failure(name, f"{worker.hung} and was replaced", None)
    return wording.failure(name, _predicate(worker, event) or wording.how_it_ended(event.code), None)


def _predicate(worker: Worker, event: Exited) -> str | None:
    if worker.failed is not None:
        return f"failed: {worker.failed.message}"
    if worker.hung:
        return worker.hung
    if worker.lost and not event.by_itself and worker.phase is not Phase.ENDING:
        return wording.lost_link(worker.lost)
    if not event.by_itself:
        return None
    if event.code == 0:
        return "ended with exit code 0 before the training was finished."
    return wording.how_it_ended(event.code)
