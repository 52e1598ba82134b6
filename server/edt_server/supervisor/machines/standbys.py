"""Workers ahead of their slots: prepared for the training, each waits for a slot that is still to be granted. Pure.

A standby is a worker's process like any other, which waits in silence once it is ready. It holds no slot, is in no
generation and is reported to nobody, until a slot is granted: then it is the worker of that slot, as if it had been
started for it and had been very quick. Whatever goes wrong with one before that is no concern of the job's. There is
none without a reason: only while the training goes on undisturbed, and only as many as the job has slots to hope for.
"""

from __future__ import annotations

from edt_sdk.schemas.wire import link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.machines.ending import EXIT_GRACE, FAILED_GRACE
from edt_server.supervisor.machines.events import (
    End,
    Event,
    Exited,
    Instruction,
    Kill,
    LinkLost,
    Note,
    NotStarted,
    Received,
    SendMessage,
    Started,
)
from edt_server.supervisor.machines.generation import Training
from edt_server.supervisor.machines.worker_group import Phase, Worker

NOWHERE = Slot(id=-1, host="")
"""The slot of a standby."""

# One that ends before it is needed is made again, but where something kills them all it would only take the cores.
_MOST_LOST = 3
_CPU = "cpu"
_NEARNESS = (Phase.READY, Phase.PREPARING, Phase.IDLE, Phase.STARTING)


class Standbys:
    """The standbys of one job.

    Args:
        most: that there may be at a time, 0 for none.

    Attributes:
        workers: by number, until their processes have ended or they have slots.
    """

    def __init__(self, most: int) -> None:
        self.workers: dict[int, Worker] = {}
        self._most = most
        self._training = -1
        self._lost = 0

    def wanted(self, training: Training | None, granted: tuple[Slot, ...], asked: int) -> int:
        """How many there should be.

        Args:
            training: the one under way.
            granted: slots of the job.
            asked: slots that it would have if all were free.
        """
        if training is None or training.updates is not None or not training.members or not granted:
            return 0
        # One that has not touched a GPU has not prepared for it, and it must not before it knows which.
        if any(slot.device != _CPU for slot in granted):
            return 0
        if self._training != training.number:
            self._training, self._lost = training.number, 0
        if self._lost >= _MOST_LOST:
            return 0
        return max(0, min(self._most, min(asked, training.shards) - len(granted)))

    def short_of(self, wanted: int) -> bool:
        """Whether another one is to be started: they are prepared one after the other, which holds less up."""
        return len(self.workers) < wanted and all(worker.phase is Phase.READY for worker in self.workers.values())

    def add(self, number: int) -> None:
        """One of that number is about to be started."""
        self.workers[number] = Worker(number, NOWHERE)

    def take(self, slot: Slot) -> Worker | None:
        """The one that is nearest to being ready, now the worker of `slot`; None when there is none for it."""
        fit = [worker for worker in self.workers.values() if worker.phase in _NEARNESS and not worker.dying]
        if not fit or slot.device != _CPU:
            return None
        worker = min(fit, key=lambda each: _NEARNESS.index(each.phase))
        del self.workers[worker.number]
        worker.slot = slot
        self._lost = 0
        return worker

    def keep(self, most: int) -> list[Instruction]:
        """End those beyond so many, the youngest first."""
        surplus = list(self.workers.values())[max(0, most) :]
        out: list[Instruction] = []
        for worker in surplus:
            if worker.phase is not Phase.ENDING:
                worker.phase = Phase.ENDING
                out.append(End(worker.number, 0.0))
        return out

    def scarce(self) -> list[Instruction]:
        """Memory is: there are to be none while this training lasts."""
        self._lost = _MOST_LOST
        return self.keep(0)

    def hear(self, process: int, event: Event, training: Training | None) -> list[Instruction]:
        """What to do about an event of one of them."""
        worker = self.workers[process]
        match event:
            case Started(pid=pid):
                worker.pid = pid
                # Said before there was anybody to end.
                return [End(process, 0.0)] if worker.phase is Phase.ENDING else []
            case NotStarted(why=why):
                del self.workers[process]
                self._lost = _MOST_LOST
                return [Note(f"no standby in this training: {why}")]
            case Received(message=message):
                return self._said(worker, message, training)
            case LinkLost(why=why):
                worker.lost = why
                return [Kill(process, EXIT_GRACE)]
            case Exited(code=code):
                del self.workers[process]
                if worker.phase is Phase.ENDING:
                    return []
                self._lost += 1
                return [Note(f"standby {process} ended, code {code}")]
            case _:
                return []

    def _said(self, worker: Worker, message: link.Upward, training: Training | None) -> list[Instruction]:
        match message:
            case link.WorkerHello() if worker.phase is Phase.STARTING and training is not None:
                worker.hello, worker.phase = message, Phase.PREPARING
                return [SendMessage(worker.number, training.begin())]
            case link.WorkerReady() if worker.phase is Phase.PREPARING:
                worker.phase = Phase.READY
            case link.Failed():
                # What is wrong with it will be said by the worker of a slot, if that meets it too.
                worker.failed = message
                self._lost = _MOST_LOST
                note = Note(f"standby {worker.number} failed: {message.message}")
                return [note, End(worker.number, FAILED_GRACE)]
            case _:
                pass
        return []
