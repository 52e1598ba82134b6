"""Hold the state of each process of an elastic job: its phase and what it reported."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import Enum

from edt_sdk.schemas.wire import link
from edt_sdk.schemas.wire.control import Slot


class WorkerPhase(Enum):
    """The phases of a worker, which serves one training and exits."""

    STARTING = "process started"
    IDLE = "said hello; nothing to train yet"
    PREPARING = "loads the payload, opens the data set"
    READY = "waits for a generation"
    MEMBER = "in the newest generation"
    LEAVING = "not in the newest generation any more"
    ENDING = "told to end"


OUTSIDE = frozenset({WorkerPhase.STARTING, WorkerPhase.IDLE, WorkerPhase.PREPARING, WorkerPhase.READY})


@dataclass(slots=True)
class LinkedProcess:
    """A process in one or more slots, from the instruction to start it until its exit.

    Attributes:
        lost: why its link is gone, "" while the link is open.
        hung: what the watchdog saw before it had the process killed, "" if nothing.
        hung_by_itself: nothing outside of the process explains that, see `watchdog.Hang`.
    """

    number: int
    slot: Slot
    _: KW_ONLY
    pid: int | None = None
    hello: link.WorkerHello | None = None
    failed: link.Failed | None = None
    lost: str = ""
    hung: str = ""
    hung_by_itself: bool = False

    @property
    def dying(self) -> bool:
        """True while the process exists but is about to exit."""
        return bool(self.lost) or bool(self.hung) or self.failed is not None

    def member(self, *, fresh: bool = False) -> link.Member:
        """Return the process as a generation or a round names it. Requires its hello."""
        assert self.hello is not None
        return link.Member(
            worker=self.number,
            slot=self.slot.id,
            pid=self.hello.pid,
            host=self.hello.host,
            store_port=self.hello.store_port,
            fresh=fresh,
        )


@dataclass(slots=True)
class Worker(LinkedProcess):
    """A worker's process.

    Attributes:
        joined: it has been in a generation, so it has the state.
        left: it announced that it leaves.
        revoked: it exits because its slot was revoked. Its exit frees the slot.
    """

    phase: WorkerPhase = WorkerPhase.STARTING
    joined: bool = False
    left: bool = False
    revoked: bool = False

    @property
    def takes_part(self) -> bool:
        """True from its first generation until it has left or was asked to end."""
        return self.phase in (WorkerPhase.MEMBER, WorkerPhase.LEAVING) and not self.left


class WorkerGroup:
    """The workers of a job, by number, in the order of their start. A number is never used again."""

    def __init__(self, first: int = 0) -> None:
        self.workers: dict[int, Worker] = {}
        self._next = first

    def add(self, slot: Slot) -> Worker:
        """Add a worker for this slot, which is about to be started."""
        worker = Worker(self.new_number(), slot)
        self.workers[worker.number] = worker
        return worker

    def new_number(self) -> int:
        """Return a new number, which no other worker gets."""
        self._next += 1
        return self._next - 1

    @property
    def slots(self) -> frozenset[int]:
        """The slots that have a worker."""
        return frozenset(worker.slot.id for worker in self.workers.values())

    @property
    def pids(self) -> dict[int, int]:
        """The pids of the workers with running processes, by worker."""
        return {worker.number: worker.pid for worker in self.workers.values() if worker.pid is not None}

    @property
    def ready(self) -> list[int]:
        """The workers that could be taken into a generation."""
        return [w.number for w in self.workers.values() if w.phase is WorkerPhase.READY and not w.dying]

    @property
    def preparing(self) -> list[int]:
        """The slots of workers that are not ready yet."""
        before = OUTSIDE - {WorkerPhase.READY}
        return [worker.slot.id for worker in self.workers.values() if worker.phase in before and not worker.dying]

    @property
    def taking_part(self) -> frozenset[int]:
        """The workers in the newest generation, or leaving an older one."""
        return frozenset(worker.number for worker in self.workers.values() if worker.takes_part)

    @property
    def any_dying(self) -> bool:
        """True while a dying worker may still write the checkpoint that is its generation's to write."""
        return any(worker.dying and worker.takes_part for worker in self.workers.values())


class DriverPhase(Enum):
    """The phases of the driver."""

    NONE = "not started"
    STARTED = "process started"
    TALKING = "said hello"
    GONE = "ended, or could not be started"


@dataclass(slots=True)
class Driver:
    """The driver's process. The fields are as in `Worker`."""

    phase: DriverPhase = DriverPhase.NONE
    failed: link.Failed | None = None
    lost: str = ""
    pid: int | None = None

    @property
    def runs(self) -> bool:
        """True from its start to its exit."""
        return self.phase in (DriverPhase.STARTED, DriverPhase.TALKING)
