"""What is known of each process of the job: where it is in its life and what it said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edt_sdk.schemas.job import JobProgress
from edt_sdk.schemas.wire import link
from edt_sdk.schemas.wire.control import Slot


class Phase(Enum):
    """Where a worker is in its one life: it serves one training and ends."""

    STARTING = "process started"
    IDLE = "said hello; nothing to train yet"
    PREPARING = "loads the payload, opens the data set"
    READY = "waits for a generation"
    MEMBER = "in the newest generation"
    LEAVING = "not in the newest generation any more"
    ENDING = "told to end"


OUTSIDE = frozenset({Phase.STARTING, Phase.IDLE, Phase.PREPARING, Phase.READY})


@dataclass(slots=True)
class Worker:
    """One worker's process, from its start until its exit.

    Attributes:
        joined: it was in a complete generation at least once.
        left: it said that it leaves.
        revoked: it ends because its slot was revoked; its exit frees the slot.
        lost: why its link is gone, "" while it is there.
        hung: what the watch saw before it had the worker killed, "" if nothing.
        pid: of its process, None before that runs.
    """

    number: int
    slot: Slot
    phase: Phase = Phase.STARTING
    hello: link.WorkerHello | None = None
    joined: bool = False
    left: bool = False
    revoked: bool = False
    failed: link.Failed | None = None
    lost: str = ""
    hung: str = ""
    pid: int | None = None

    @property
    def takes_part(self) -> bool:
        """True from its first generation until it has left or was told to end."""
        return self.phase in (Phase.MEMBER, Phase.LEAVING) and not self.left

    @property
    def dying(self) -> bool:
        """Its process is there, but will be gone in a moment."""
        return bool(self.lost) or bool(self.hung) or self.failed is not None

    def member(self, *, fresh: bool) -> link.Member:
        """The worker as a generation names it; it has said hello."""
        assert self.hello is not None
        return link.Member(
            worker=self.number,
            slot=self.slot.id,
            pid=self.hello.pid,
            host=self.hello.host,
            store_port=self.hello.store_port,
            fresh=fresh,
        )


class DriverPhase(Enum):
    """Where the driver is."""

    NONE = "not started"
    STARTED = "process started"
    TALKING = "said hello"
    GONE = "ended, or could not be started"


@dataclass(slots=True)
class Driver:
    """The driver's process; fields as in `Worker`."""

    phase: DriverPhase = DriverPhase.NONE
    failed: link.Failed | None = None
    lost: str = ""
    pid: int | None = None

    @property
    def runs(self) -> bool:
        """True from its start to its exit."""
        return self.phase in (DriverPhase.STARTED, DriverPhase.TALKING)


def progress_of(message: link.Progress) -> JobProgress:
    """Rank 0's message as the server shows it."""
    return JobProgress(
        update=message.update,
        total_updates=message.total_updates,
        epoch=message.epoch,
        epochs=message.epochs,
        loss=message.loss,
        accuracy=message.accuracy,
        test_loss=message.test_loss,
        test_accuracy=message.test_accuracy,
        samples_per_second=message.samples_per_second,
        not_a_number=message.not_a_number,
    )
