"""What the membership machine hears and what it answers: plain values, no I/O.

Events are what happened to the job, instructions what the supervisor has to do about it, in order. A process is named
by its worker number, the driver by `DRIVER`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edt_sdk.schemas.control import Report, Slot
from edt_sdk.schemas.job import JobProgress
from edt_sdk.schemas.link import Downward, Upward
from edt_server.supervisor.tails import LastWords

DRIVER: Final = -1


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allocated:
    """The server's newest allocation; `version` grows."""

    version: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The server has committed the reports up to `number`."""

    number: int


@dataclass(frozen=True, slots=True)
class Started:
    """The process asked for runs."""

    process: int
    pid: int


@dataclass(frozen=True, slots=True)
class NotStarted:
    """The process asked for could not be started; `why` is a sentence."""

    process: int
    why: str


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a process, over its link."""

    process: int
    message: Upward


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The process's link closed, or was closed because it sent nonsense (`why` says which)."""

    process: int
    why: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has ended and everything it had said was heard.

    Attributes:
        code: exit code, or minus the signal's number.
        signals: what it had been sent by the supervisor before.
        words: its last log lines, None when it never wrote any.
    """

    process: int
    code: int
    signals: tuple[int, ...] = ()
    words: LastWords | None = None

    @property
    def by_itself(self) -> bool:
        """False when the supervisor's own signals explain the exit."""
        return not self.signals or (self.code < 0 and -self.code not in self.signals)


@dataclass(frozen=True, slots=True)
class Stop:
    """End the job as KILLED."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server will not have this supervisor: end everything, report nothing."""

    why: str


Event = Allocated | Acknowledged | Started | NotStarted | Said | LinkLost | Exited | Stop | Refuse


# --- instructions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Answered by Started or NotStarted."""


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Answered by Started or NotStarted."""

    worker: int
    slot: Slot


@dataclass(frozen=True, slots=True)
class End:
    """Give the process `patience` seconds to end by itself, then SIGTERM, then SIGKILL. Answered by Exited."""

    process: int
    patience: float


@dataclass(frozen=True, slots=True)
class Tell:
    """Send over the process's link."""

    process: int
    message: Downward


@dataclass(frozen=True, slots=True)
class Send:
    """Report to the server; numbers follow each other."""

    number: int
    report: Report


@dataclass(frozen=True, slots=True)
class Publish:
    """Progress, unnumbered."""

    progress: JobProgress


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the supervisor's own log."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over and no process of it is left; exit when all reports are delivered."""


Instruction = StartDriver | StartWorker | End | Tell | Send | Publish | Note | Finish
