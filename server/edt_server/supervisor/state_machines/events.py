"""Define the events that a job's state machine takes in and the instructions that it returns: values, no I/O.

Events are what happened to the job. Instructions are what the supervisor has to do about it, in order. A process is
identified by its worker number, the driver by `DRIVER`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edt_sdk.schemas.job import JobProgress
from edt_sdk.schemas.wire.control import Report, Slot
from edt_sdk.schemas.wire.link import Downward, Upward
from edt_sdk.schemas.wire.task import Task
from edt_server.supervisor.state_machines.wording import LastLines

DRIVER: Final = -1


# --- events -----------------------------------------------------------------------------------------------------------


class MachineEvent:
    """An event of a job."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Allocated(MachineEvent):
    """The server's newest allocation has arrived.

    `version` grows. `asked` is the number of slots that the job would have if all were free, and `budget` the epochs
    after which its trainings hold. `apart` are hosts that the others of the job do not reach.
    """

    version: int
    slots: tuple[Slot, ...]
    asked: int = 0
    budget: int | None = None
    apart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Acknowledged(MachineEvent):
    """The server has committed the reports up to `number`."""

    number: int


@dataclass(frozen=True, slots=True)
class Started(MachineEvent):
    """A requested process runs."""

    process: int
    pid: int


@dataclass(frozen=True, slots=True)
class NotStarted(MachineEvent):
    """A requested process could not be started. `why` is a sentence."""

    process: int
    why: str


@dataclass(frozen=True, slots=True)
class Received(MachineEvent):
    """A message of a process arrived over its link."""

    process: int
    message: Upward


@dataclass(frozen=True, slots=True)
class LinkLost(MachineEvent):
    """The process's link closed, or was closed because of an invalid message (`why` is the reason)."""

    process: int
    why: str


@dataclass(frozen=True, slots=True)
class Exited(MachineEvent):
    """The process has exited, and all its messages were handled.

    Attributes:
        code: exit code, or minus the signal's number.
        signals: the signals that the supervisor had sent it.
        words: its last log lines, None when it never wrote any.
        updates: committed updates by the heartbeats of this and the other workers, None when there are none.
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
class Hung(MachineEvent):
    """The worker's heartbeat is overdue. `why` and `own` are as in `watchdog.Hang`."""

    process: int
    why: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class MemoryScarce(MachineEvent):
    """Little memory is left: standby workers have to go."""


@dataclass(frozen=True, slots=True)
class Gathered(MachineEvent):
    """The answer to `Gather`: the wait is over."""

    generation: int


@dataclass(frozen=True, slots=True)
class Rechecked(MachineEvent):
    """The answer to `Recheck`: everything that had happened at its time is known by now."""

    generation: int


@dataclass(frozen=True, slots=True)
class Stop(MachineEvent):
    """End the job as KILLED."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse(MachineEvent):
    """The server refuses this supervisor: end everything, report nothing."""

    why: str


# --- instructions -----------------------------------------------------------------------------------------------------


class Instruction:
    """An instruction to the supervisor."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StartDriver(Instruction):
    """Start the driver. Answered by Started or NotStarted."""


@dataclass(frozen=True, slots=True)
class StartWorker(Instruction):
    """Start a worker. Answered by Started or NotStarted. `others` are further slots of the same process."""

    worker: int
    slot: Slot
    others: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class StartStandby(Instruction):
    """Start a standby worker, see `standbys`. Answered by Started or NotStarted."""

    worker: int


@dataclass(frozen=True, slots=True)
class AssignStandby(Instruction):
    """Make a standby the worker of this slot, whether its process exists already or not."""

    worker: int
    slot: Slot


@dataclass(frozen=True, slots=True)
class StartTask(Instruction):
    """Start a process of a plain job. Answered by Started or NotStarted. `spans`: its ranks are on several hosts."""

    worker: int
    task: Task
    spans: bool = False


@dataclass(frozen=True, slots=True)
class End(Instruction):
    """Give the process `patience` seconds to exit by itself, then SIGTERM, then SIGKILL. Answered by Exited."""

    process: int
    patience: float


@dataclass(frozen=True, slots=True)
class Kill(Instruction):
    """Send SIGKILL after `patience` seconds in which it may exit by itself. Answered by Exited.

    With `stack` it is first asked to write the stack of its main thread to its stderr.
    """

    process: int
    patience: float
    stack: bool = False


@dataclass(frozen=True, slots=True)
class Gather(Instruction):
    """Wait a moment, so that workers about to be ready join in the same change. Answered by Gathered."""

    generation: int


@dataclass(frozen=True, slots=True)
class Recheck(Instruction):
    """Wait a moment: members report that their group broke, and no death is known. Answered by Rechecked.

    The closed link of a dead member may be unread while such a message arrives. A broken network leaves nothing unread.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class SendMessage(Instruction):
    """Send a message over the process's link."""

    process: int
    message: Downward


@dataclass(frozen=True, slots=True)
class SendReport(Instruction):
    """Report to the server. The numbers are consecutive."""

    number: int
    report: Report


@dataclass(frozen=True, slots=True)
class Publish(Instruction):
    """Publish progress, unnumbered."""

    progress: JobProgress


@dataclass(frozen=True, slots=True)
class Note(Instruction):
    """Write a line to the supervisor's own log."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish(Instruction):
    """Exit when all reports are delivered: no process of the job is left.

    `over` is True when the job has ended, and False when only this supervisor has, because the server refused it.
    """

    over: bool = True
