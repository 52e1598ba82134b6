"""What a job's state machine hears and what it answers: plain values, no I/O.

Events are what happened to the job, instructions what the supervisor has to do about it, in order. A process is named
by its worker number, the driver by `DRIVER`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edt_sdk.schemas.job import JobProgress
from edt_sdk.schemas.wire.control import Report, Slot
from edt_sdk.schemas.wire.link import Downward, Upward
from edt_sdk.schemas.wire.task import Task
from edt_server.supervisor.machines.tails import LastLines

DRIVER: Final = -1


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allocated:
    """The server's newest allocation; `version` grows. `asked`: slots that it would have if all were free."""

    version: int
    slots: tuple[Slot, ...]
    asked: int = 0


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
class Received:
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
        updates: committed updates that it and the others knew of, by their signs of life; None when there are none.
    """

    process: int
    code: int
    signals: tuple[int, ...] = ()
    words: LastLines | None = None
    updates: int | None = None

    @property
    def by_itself(self) -> bool:
        """False when the supervisor's own signals explain the exit."""
        return not self.signals or (self.code < 0 and -self.code not in self.signals)


@dataclass(frozen=True, slots=True)
class Hung:
    """The worker gives no sign of life where it should; `why` is the predicate of a sentence."""

    process: int
    why: str


@dataclass(frozen=True, slots=True)
class MemoryScarce:
    """There is little memory left: whoever can be done without is to go."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The answer to `Gather`: those who are ready wait no longer."""

    generation: int


@dataclass(frozen=True, slots=True)
class Rechecked:
    """The answer to `Recheck`: all that had happened when that was said is known by now."""

    generation: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the job as KILLED."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server will not have this supervisor: end everything, report nothing."""

    why: str


Event = (
    Allocated
    | Acknowledged
    | Started
    | NotStarted
    | Received
    | LinkLost
    | Exited
    | Hung
    | Gathered
    | Rechecked
    | MemoryScarce
    | Stop
    | Refuse
)


# --- instructions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Answered by Started or NotStarted."""


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Answered by Started or NotStarted; `others` are further slots of the same process."""

    worker: int
    slot: Slot
    others: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class StartStandby:
    """A worker ahead of its slot, see `standbys`. Answered by Started or NotStarted."""

    worker: int


@dataclass(frozen=True, slots=True)
class AssignStandby:
    """A standby, whose process may be there already or not, is the worker of this slot from now on."""

    worker: int
    slot: Slot


@dataclass(frozen=True, slots=True)
class StartTask:
    """A process of a plain job. Answered by Started or NotStarted."""

    worker: int
    task: Task


@dataclass(frozen=True, slots=True)
class End:
    """Give the process `patience` seconds to end by itself, then SIGTERM, then SIGKILL. Answered by Exited."""

    process: int
    patience: float


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL, after `patience` seconds in which it may end by itself. Answered by Exited."""

    process: int
    patience: float


@dataclass(frozen=True, slots=True)
class Gather:
    """Somebody is ready and others soon will be: one change for all of them. Answered by Gathered, whoever has come."""

    generation: int


@dataclass(frozen=True, slots=True)
class Recheck:
    """Members say that their group broke, and nobody is known to have died. Answered by Rechecked, soon.

    The closed link of a dead member may lie unread beside such a message; a broken network leaves nothing to read.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send over the process's link."""

    process: int
    message: Downward


@dataclass(frozen=True, slots=True)
class SendReport:
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
    """No process of the job is left; exit when all reports are delivered.

    `over`: the job has ended; False when only this supervisor has, because the server refused it.
    """

    over: bool = True


Instruction = (
    StartDriver
    | StartWorker
    | StartStandby
    | AssignStandby
    | StartTask
    | End
    | Kill
    | Gather
    | Recheck
    | SendMessage
    | SendReport
    | Publish
    | Note
    | Finish
)
