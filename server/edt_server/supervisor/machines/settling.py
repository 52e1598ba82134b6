"""What follows from a job's state as it is now, whatever happened: the half of the state machine that acts. Pure.

Done after each event, so that the order in which things become known does not matter: the next generation when the last
change is complete or a member is lost, a worker for every granted slot, a release for every revoked slot whose worker
is gone, the end of a training when its workers are gone.
"""

from __future__ import annotations

from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.machines.attempts import Attempts
from edt_server.supervisor.machines.crew import Crew
from edt_server.supervisor.machines.events import (
    DRIVER,
    AssignStandby,
    Gather,
    StartDriver,
    StartStandby,
    StartWorker,
    Tell,
)
from edt_server.supervisor.machines.generation import Training
from edt_server.supervisor.machines.history import History
from edt_server.supervisor.machines.machine import Machine
from edt_server.supervisor.machines.roster import OUTSIDE, Driver, DriverPhase, Phase, Worker
from edt_server.supervisor.machines.standbys import Standbys


class Settling(Machine):
    """One job's state, and what follows from it.

    Args:
        interpreter: named in the message when the driver cannot start.
        history: what an earlier attempt has done.
        standbys: workers that may be kept ahead of their slots.
    """

    def __init__(self, *, interpreter: str, history: History | None = None, standbys: int = 0) -> None:
        past = History() if history is None else history
        super().__init__(past)
        self._interpreter = interpreter
        self._crew = Crew(past.workers)
        self._workers = self._crew.workers
        self._standbys = Standbys(standbys)
        self._driver = Driver()
        self._driver_ran = past.driver_ran
        self._training = past.running
        self._done = list(past.trainings)
        self._attempts = Attempts(past.committed, ever=any(past.trainings))

    @property
    def taking_part(self) -> frozenset[int]:
        """Workers that should move: they are in the newest generation, or on their way out of an older one."""
        training = self._training
        return frozenset() if training is None or training.updates is not None else self._crew.taking_part

    @property
    def training(self) -> bool:
        """True while updates are to be made: more workers may be needed at any time."""
        return self._ending is None and self._training is not None and self._training.updates is None

    @property
    def processes(self) -> dict[int, int]:
        """Pids of the workers whose processes run, by worker."""
        return self._crew.pids

    @property
    def given_up(self) -> frozenset[int]:
        """Slots that stay empty although they are the job's: no worker in them gets as far as those that train."""
        training = self._training
        return self._attempts.given_up if training is not None and training.members else frozenset()

    @property
    def committed(self) -> int:
        """Updates of the running training that are known to be committed."""
        return self._attempts.committed

    # --- what follows -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._ending is None:
            self._end_training()
            self._end_revoked()
            self._assign_standbys()
            self._change_generation()
            self._fill_slots()
            self._keep_standbys()
        if self._ending is not None:
            processes = (*self._workers.values(), *self._standbys.workers.values())
            self._out += self._ending.wind_up(processes, self._driver, self._training)
            if not processes and not self._driver.runs:
                self._finish(self._ending)

    def _end_revoked(self) -> None:
        for worker in self._workers.values():
            if worker.phase in OUTSIDE and not self._slots.allowed(worker.slot.id):
                worker.phase, worker.revoked = Phase.ENDING, True
                self._end(worker.number, 0.0)

    def _fill_slots(self) -> None:
        """A driver as soon as there is a slot; a worker in every granted slot; revoked ones are released when empty."""
        granted = self._slots.granted
        # One that ran before, for an earlier supervisor, may need no slot any more.
        if self._driver.phase is DriverPhase.NONE and (granted or (self._driver_ran and self._slots.known)):
            self._driver.phase = DriverPhase.STARTED
            self._out.append(StartDriver())
        self._release_revoked(self._crew.slots)
        for slot_granted in self._empty_slots():
            self._out.append(StartWorker(self._crew.hire(slot_granted).number, slot_granted))

    def _empty_slots(self) -> list[Slot]:
        """Granted ones without a worker that are to have one."""
        training = self._training
        if (training is None and self._done) or (training is not None and training.updates is not None):
            return []
        filled = self._crew.slots | self.given_up
        return [slot for slot in self._slots.granted if slot.id not in filled]

    def _assign_standbys(self) -> None:
        """Workers ahead of their slots get those that are empty: before the next generation, so that they are in it."""
        for slot in self._empty_slots():
            worker = self._standbys.take(slot)
            if worker is not None:
                self._workers[worker.number] = worker
                self._out.append(AssignStandby(worker.number, slot))
                if worker.pid is not None:
                    self._send(control.WorkerStarted(worker=worker.number, slot=slot.id, pid=worker.pid))

    def _keep_standbys(self) -> None:
        """As many as there should be; another one only while the members train on, undisturbed by each other."""
        wanted = self._standbys.wanted(self._training, self._slots.granted, self._asked)
        self._out += self._standbys.keep(wanted)
        training = self._training
        if training is None or training.changing or training.broken or self._crew.on_their_way:
            return
        # Not before an update of the newest generation: its first one has enough to do.
        if self.committed > training.began and self._standbys.short_of(wanted):
            number = self._crew.number()
            self._standbys.add(number)
            self._out.append(StartStandby(number))

    def _change_generation(self) -> None:
        training = self._training
        if training is None or self._crew.somebody_dies:
            return
        following = training.next_members(
            self._crew.ready,
            lambda number: self._slots.allowed(self._workers[number].slot.id),
            suspended=not self._slots.granted,
        )
        if following is None or self._gathers(training, following):
            return
        before = training.members
        told = training.change(following)
        message = link.Generation(
            training=training.number,
            number=training.generation,
            members=tuple(self._workers[number].member(fresh=number not in before) for number in following),
        )
        for number in told:
            worker = self._workers[number]
            worker.phase = Phase.MEMBER if number in following else Phase.LEAVING
            worker.revoked = number not in following
            if not worker.left:
                self._out.append(Tell(number, message))

    def _gathers(self, training: Training, following: tuple[int, ...]) -> bool:
        """True while a change that only adds members waits a moment for others who are on their way."""
        if training.broken or not training.members or not set(training.members) <= set(following):
            return False
        coming = (*self._crew.on_their_way, *(slot.id for slot in self._empty_slots()))
        if training.gathered or not any(self._slots.allowed(slot) for slot in coming):
            return False
        if not training.gathering:
            training.gathering = True
            self._out.append(Gather(training.generation))
        return True

    def _end_training(self) -> None:
        """When the last worker of a finished training is gone, everybody hears of it and the slots are free."""
        training = self._training
        if training is None or training.updates is None or self._workers:
            return
        self._training = None
        self._done.append(training.updates)
        self._send(control.TrainingEnded(training=training.number, updates=training.updates))
        for slot in self._slots.held:
            self._release(slot)
        self._out.append(Tell(DRIVER, link.TrainingDone(training=training.number, updates=training.updates)))

    # --- small change -------------------------------------------------------------------------------------------------

    def _begin(self, worker: Worker, training: Training) -> None:
        worker.phase = Phase.PREPARING
        self._out.append(Tell(worker.number, training.begin()))
