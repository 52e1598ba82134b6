"""Keep standby workers: prepared for the training, each waits for a slot that is not granted yet. Pure.

A standby is a worker's process like any other, which waits silently once it is ready. It holds no slot, is in no
generation and in no report, until a slot is granted: then it is the worker of that slot, as if it had been started for
it and had been very quick. Its failures before that do not concern the job. Standbys exist only while the training runs
undisturbed, and only as many as the job may still get slots.
"""

from __future__ import annotations

from edt_sdk.schemas.wire import link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines import events
from edt_server.supervisor.state_machines.ending import EXIT_GRACE, FAILED_GRACE
from edt_server.supervisor.state_machines.generation import TrainingRun
from edt_server.supervisor.state_machines.worker_group import Worker, WorkerPhase

NOWHERE = Slot(id=-1, host="")
"""The slot of a standby."""

# A standby that exits early is replaced, but not for ever: something may be killing them all.
_MOST_LOST = 3
_CPU = "cpu"
_NEARNESS = (WorkerPhase.READY, WorkerPhase.PREPARING, WorkerPhase.IDLE, WorkerPhase.STARTING)


class Standbys:
    """The standbys of a job, at most so many at a time.

    `workers` has them by number, until their processes have exited or they have slots.
    """

    def __init__(self, most: int) -> None:
        self.workers: dict[int, Worker] = {}
        self._most = most
        self._training = -1
        self._lost = 0

    def wanted(self, training: TrainingRun | None, granted: tuple[Slot, ...], asked: int) -> int:
        """Return how many standbys there should be. The job would have `asked` slots if all were free."""
        if training is None or training.updates is not None or not training.members or not granted:
            return 0
        # A standby must not touch a GPU before it knows which one is its own, and without that it is not prepared.
        if any(slot.device != _CPU for slot in granted):
            return 0
        if self._training != training.number:
            self._training, self._lost = training.number, 0
        # A standby with failing code would fail again. The worker of a slot will report the same error (decision 033).
        if self._lost >= _MOST_LOST:
            return 0
        # Not beyond what the job asks for: in a job that has all it wants a standby would only waste memory (decision
        # 033).
        return max(0, min(self._most, min(asked, training.shards) - len(granted)))

    def short_of(self, wanted: int) -> bool:
        """Return whether to start another one: they are prepared one at a time, which disturbs the training less."""
        return len(self.workers) < wanted and all(worker.phase is WorkerPhase.READY for worker in self.workers.values())

    def add(self, number: int) -> None:
        """Add the standby of that number, which is about to be started."""
        self.workers[number] = Worker(number, NOWHERE)

    def take(self, slot: Slot) -> Worker | None:
        """Return the standby closest to being ready, as the worker of `slot`. None when there is none for it."""
        fit = [worker for worker in self.workers.values() if worker.phase in _NEARNESS and not worker.dying]
        if not fit or slot.device != _CPU:
            return None
        worker = min(fit, key=lambda each: _NEARNESS.index(each.phase))
        del self.workers[worker.number]
        worker.slot = slot
        self._lost = 0
        return worker

    def keep(self, most: int) -> list[events.Instruction]:
        """End the standbys beyond so many, the youngest first."""
        surplus = list(self.workers.values())[max(0, most) :]
        out: list[events.Instruction] = []
        for worker in surplus:
            if worker.phase is not WorkerPhase.ENDING:
                worker.phase = WorkerPhase.ENDING
                out.append(events.End(worker.number, 0.0))
        return out

    def scarce(self) -> list[events.Instruction]:
        """End all standbys for the rest of this training, because memory is scarce."""
        self._lost = _MOST_LOST
        return self.keep(0)

    def hear(self, process: int, event: events.MachineEvent, training: TrainingRun | None) -> list[events.Instruction]:
        """Return what to do about an event of a standby."""
        worker = self.workers[process]
        match event:
            case events.Started(pid=pid):
                worker.pid = pid
                # It had to end before its process existed.
                return [events.End(process, 0.0)] if worker.phase is WorkerPhase.ENDING else []
            case events.NotStarted(why=why):
                del self.workers[process]
                self._lost = _MOST_LOST
                return [events.Note(f"no standby in this training: {why}")]
            case events.Received(message=message):
                return self._said(worker, message, training)
            case events.LinkLost(why=why):
                worker.lost = why
                return [events.Kill(process, EXIT_GRACE)]
            case events.Exited(code=code):
                del self.workers[process]
                if worker.phase is WorkerPhase.ENDING:
                    return []
                self._lost += 1
                return [events.Note(f"standby {process} ended, code {code}")]
            case _:
                return []

    def _said(self, worker: Worker, message: link.Upward, training: TrainingRun | None) -> list[events.Instruction]:
        match message:
            case link.WorkerHello() if worker.phase is WorkerPhase.STARTING and training is not None:
                worker.hello, worker.phase = message, WorkerPhase.PREPARING
                return [events.SendMessage(worker.number, training.begin())]
            case link.WorkerReady() if worker.phase is WorkerPhase.PREPARING:
                worker.phase = WorkerPhase.READY
            case link.Failed():
                # The worker of a slot reports the same failure, if it has it too.
                worker.failed = message
                self._lost = _MOST_LOST
                note = events.Note(f"standby {worker.number} failed: {message.message}")
                return [note, events.End(worker.number, FAILED_GRACE)]
            case _:
                pass
        return []
