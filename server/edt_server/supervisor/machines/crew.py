"""The workers whose processes are there, and what can be asked about all of them. Pure."""

from __future__ import annotations

from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.machines.roster import Phase, Worker


class Crew:
    """The workers of one job.

    Args:
        first: the first worker's number; a number is never used again.

    Attributes:
        workers: by number, in the order of their start.
    """

    def __init__(self, first: int = 0) -> None:
        self.workers: dict[int, Worker] = {}
        self._next = first

    def hire(self, slot: Slot) -> Worker:
        """A new worker for this slot, which is about to be started."""
        worker = Worker(self.number(), slot)
        self.workers[worker.number] = worker
        return worker

    def number(self) -> int:
        """A number for a worker to be, used for nobody else."""
        self._next += 1
        return self._next - 1

    @property
    def slots(self) -> frozenset[int]:
        """Those that have a worker."""
        return frozenset(worker.slot.id for worker in self.workers.values())

    @property
    def pids(self) -> dict[int, int]:
        """Of those whose processes run, by worker."""
        return {worker.number: worker.pid for worker in self.workers.values() if worker.pid is not None}

    @property
    def ready(self) -> list[int]:
        """Those that could be taken into a generation."""
        return [w.number for w in self.workers.values() if w.phase is Phase.READY and not w.dying]

    @property
    def on_their_way(self) -> list[int]:
        """Slots of those that prepare to be ready."""
        before = (Phase.STARTING, Phase.IDLE, Phase.PREPARING)
        return [worker.slot.id for worker in self.workers.values() if worker.phase in before and not worker.dying]

    @property
    def taking_part(self) -> frozenset[int]:
        """Those in the newest generation, or on their way out of an older one."""
        return frozenset(worker.number for worker in self.workers.values() if worker.takes_part)

    @property
    def somebody_dies(self) -> bool:
        """True while one that will be gone in a moment may still write what is its generation's to write."""
        return any(worker.dying and worker.takes_part for worker in self.workers.values())
