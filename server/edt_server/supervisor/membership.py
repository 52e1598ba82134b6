"""The job's state machine: events in, instructions out. No clock, no I/O.

After each event everything that follows from the state as it is now is done (`_settle`), so the order in which things
become known does not matter: a worker for every granted slot, the next generation when the last change is complete, a
release for every revoked slot whose worker is gone, the end of a training when its workers are gone.

In this release a worker that dies fails the job: that rule is `_worker_died` alone.
"""

from __future__ import annotations

from edt_sdk.schemas import control, link
from edt_sdk.schemas.control import JobEnded, SlotReleased
from edt_sdk.schemas.job import JobState
from edt_server.supervisor import wording
from edt_server.supervisor.ending import Ending
from edt_server.supervisor.events import (
    DRIVER,
    Acknowledged,
    Allocated,
    End,
    Event,
    Exited,
    Finish,
    Instruction,
    LinkLost,
    Note,
    NotStarted,
    Publish,
    Refuse,
    Said,
    Send,
    StartDriver,
    Started,
    StartWorker,
    Stop,
    Tell,
)
from edt_server.supervisor.generation import Training
from edt_server.supervisor.roster import OUTSIDE, Driver, DriverPhase, Phase, Worker, progress_of
from edt_server.supervisor.slot_ledger import SlotLedger
from edt_server.supervisor.verdict import Past, driver_verdict, worker_cause

LINK_LOST_PATIENCE = 5.0
LEFT_PATIENCE = 10.0
TRAINED_PATIENCE = 30.0
FAILED_PATIENCE = 5.0


class Membership:
    """One job.

    Args:
        interpreter: named in the message when the driver cannot start.
        reports: reports written before, by an earlier attempt.
    """

    def __init__(self, *, interpreter: str, reports: int = 0) -> None:
        self._interpreter = interpreter
        self._reports = reports
        self._slots = SlotLedger()
        self._workers: dict[int, Worker] = {}
        self._exits: dict[int, tuple[int, int]] = {}
        self._next_worker = 0
        self._driver = Driver()
        self._training: Training | None = None
        self._trainings = 0
        self._updates = 0
        self._ending: Ending | None = None
        self._over = False
        self._out: list[Instruction] = []

    @property
    def holding(self) -> tuple[int, ...]:
        """Slots for the hello, see `SlotLedger.holding`."""
        return self._slots.holding

    @property
    def over(self) -> bool:
        """True when the job has ended and none of its processes is left."""
        return self._over

    def apply(self, event: Event) -> list[Instruction]:
        """What to do about the event, in order."""
        self._out = []
        match event:
            case Allocated():
                self._allocated(event)
            case Acknowledged(number=number):
                self._slots.acknowledge(number)
            case Started(process=process, pid=pid):
                self._started(process, pid)
            case NotStarted(process=process, why=why):
                self._not_started(process, why)
            case Said(process=process, message=message):
                if process == DRIVER:
                    self._driver_said(message)
                elif process in self._workers:
                    self._worker_said(self._workers[process], message)
            case LinkLost():
                self._link_lost(event)
            case Exited(process=process) if process == DRIVER:
                self._driver_exited(event)
            case Exited(process=process) if process in self._workers:
                self._worker_exited(self._workers.pop(process), event)
            case Stop(why=why):
                self._begin_end(JobState.KILLED, why)
            case Refuse():
                self._begin_end(JobState.KILLED, event.why)
                if self._ending is not None:
                    self._ending.reported = False
        self._settle()
        return self._out

    # --- what happened ------------------------------------------------------------------------------------------------

    def _allocated(self, event: Allocated) -> None:
        if not self._slots.allocate(event.version, event.slots):
            self._note(f"allocation {event.version} is older than the newest one: ignored")
        elif not event.slots and self._training is not None and self._training.members:
            self._note("the whole allocation is revoked: the last member stays until suspending is built")

    def _started(self, process: int, pid: int) -> None:
        if process == DRIVER:
            self._send(control.DriverStarted(pid=pid))
        else:
            worker = self._workers[process]
            self._send(control.WorkerStarted(worker=worker.number, slot=worker.slot.id, pid=pid))

    def _not_started(self, process: int, why: str) -> None:
        if process == DRIVER:
            self._driver.phase = DriverPhase.GONE
            self._begin_end(JobState.ERROR, why)
        else:
            worker = self._workers.pop(process)
            self._begin_end(JobState.FAILED, f"{self._name(worker)} could not be started: {why}")

    def _driver_said(self, message: link.Upward) -> None:
        match message:
            case link.DriverHello():
                self._driver.phase = DriverPhase.TALKING
            case link.TrainRequest():
                self._train(message)
            case link.Failed():
                self._driver.failed = message
                self._end(DRIVER, FAILED_PATIENCE)
            case _:
                self._note(f"the driver sent a {type(message).__name__}: ignored")

    def _train(self, request: link.TrainRequest) -> None:
        if self._ending is not None:
            return
        if self._training is not None or request.training != self._trainings:
            running = "none" if self._training is None else str(self._training.number)
            self._begin_end(
                JobState.FAILED,
                f"The driver asked for training {request.training} where {self._trainings} was next "
                f"(running: {running}). Call train() from one thread, one call after another.",
            )
            return
        self._training = Training(request.training, request.payload, request.shards, request.epochs)
        self._send(
            control.TrainingStarted(training=request.training, shards=request.shards, epochs=request.epochs),
        )
        for worker in self._workers.values():
            if worker.phase is Phase.IDLE:
                self._begin(worker, self._training)

    def _worker_said(self, worker: Worker, message: link.Upward) -> None:
        training = self._training
        match message:
            case link.WorkerHello() if worker.phase is Phase.STARTING:
                worker.hello = message
                worker.phase = Phase.IDLE
                if training is not None and self._ending is None:
                    self._begin(worker, training)
            case link.WorkerReady() if worker.phase is Phase.PREPARING:
                worker.phase = Phase.READY
            case link.Joined(generation=generation) if training is not None and generation == training.generation:
                self._joined(worker, message, training)
            case link.Left():
                worker.left = True
                self._end(worker.number, LEFT_PATIENCE)
            case link.Progress() if training is not None and message.training == training.number:
                self._out.append(Publish(progress_of(message)))
            case link.Trained() if training is not None and message.training == training.number:
                self._trained(training, message)
            case link.Failed():
                worker.failed = message
                done = worker.phase is Phase.ENDING or (training is not None and training.updates is not None)
                if not done and self._ending is None:
                    self._worker_died(worker, None)
            case _:
                self._note(f"worker {worker.number} ({worker.phase.value}) sent a {type(message).__name__}: ignored")

    def _joined(self, worker: Worker, message: link.Joined, training: Training) -> None:
        if worker.number not in training.joining:
            return
        worker.joined = True
        training.joining.discard(worker.number)
        training.update = message.update
        if training.joining:
            return
        self._send(training.formed(self._workers))

    def _trained(self, training: Training, message: link.Trained) -> None:
        training.updates = message.updates
        training.closing = True
        for worker in self._workers.values():
            if worker.joined:
                self._end(worker.number, TRAINED_PATIENCE)
            elif worker.phase is not Phase.ENDING:
                worker.phase = Phase.ENDING
                self._end(worker.number, 0.0)

    def _link_lost(self, event: LinkLost) -> None:
        if event.process in self._workers:
            self._workers[event.process].lost = event.why
            self._end(event.process, LINK_LOST_PATIENCE)
        elif event.process == DRIVER and self._driver.runs:
            self._driver.lost = event.why
            if self._training is not None:
                self._end(DRIVER, LINK_LOST_PATIENCE)

    def _driver_exited(self, event: Exited) -> None:
        running = None if self._training is None else self._training.number
        past = Past(self._interpreter, running, self._trainings, self._updates)
        state, message = driver_verdict(self._driver, event, past)
        self._driver.phase = DriverPhase.GONE
        self._begin_end(state, message, silent=True)

    def _worker_exited(self, worker: Worker, event: Exited) -> None:
        training = self._training
        self._exits[worker.slot.id] = (worker.number, event.code)
        if training is not None:
            training.leaving.discard(worker.number)
        if self._ending is not None:
            if event.code != 0:
                self._blame(self._ending, worker, event)
            return
        done = worker.phase is Phase.ENDING or worker.left or (training is not None and training.updates is not None)
        if done or (worker.phase is Phase.LEAVING and event.code == 0):
            if event.code != 0 and event.by_itself:
                self._note(f"worker {worker.number} {wording.how_it_ended(event.code)} after its work was done")
        elif training is not None and worker.phase is Phase.MEMBER and event.code == 0 and worker.failed is None:
            # Members but rank 0 end with 0 after the last commit; rank 0 is still writing and will say Trained.
            training.closing = True
            if not any(number in self._workers for number in training.members):
                self._worker_died(worker, event)
        else:
            self._worker_died(worker, event)
        if worker.revoked and self._ending is None:
            self._release(worker.slot.id)

    def _worker_died(self, worker: Worker, event: Exited | None) -> None:
        """The rule for a worker that dies, or says that it will: the job fails. A replacement is another rule here.

        One that ends before its hello, in a job that never trained, could not start: that is an ERROR.
        """
        training = self._training
        ran = self._trainings > 0 or (training is not None and training.generation > 0)
        if event is not None and worker.hello is None and not ran:
            what = wording.never_spoke(self._name(worker), self._interpreter, event.code, event.words)
            self._begin_end(JobState.ERROR, what, silent=True)
            return
        self._ending = Ending(JobState.FAILED)
        if event is not None:
            self._blame(self._ending, worker, event)

    def _blame(self, ending: Ending, worker: Worker, event: Exited) -> None:
        """Take the worker's end as a possible cause of the job's failure, unless the supervisor itself ended it."""
        cause = worker_cause(worker, self._name(worker), event)
        if cause is not None:
            ending.blame(cause.message, silent=cause.silent)

    # --- what follows -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._over:
            return
        if self._ending is None:
            self._end_training()
            self._fill_slots()
            self._change_generation()
        if self._ending is not None:
            self._wind_up(self._ending)

    def _fill_slots(self) -> None:
        """A driver as soon as there is a slot; a worker in every granted slot; revoked ones are left and released."""
        granted = self._slots.granted
        if granted and self._driver.phase is DriverPhase.NONE:
            self._driver.phase = DriverPhase.STARTED
            self._out.append(StartDriver())
        for worker in self._workers.values():
            if worker.phase in OUTSIDE and not self._slots.allowed(worker.slot.id):
                worker.phase, worker.revoked = Phase.ENDING, True
                self._end(worker.number, 0.0)
        occupied = {worker.slot.id for worker in self._workers.values()}
        closing = self._training is not None and self._training.closing
        for slot in self._slots.revoked:
            if slot not in occupied:
                self._release(slot)
        if closing or (self._training is None and self._trainings > 0):
            return
        for slot_granted in granted:
            if slot_granted.id not in occupied:
                worker = Worker(self._next_worker, slot_granted)
                self._next_worker += 1
                self._workers[worker.number] = worker
                self._out.append(StartWorker(worker.number, slot_granted))

    def _change_generation(self) -> None:
        training = self._training
        if training is None:
            return
        ready = [worker.number for worker in self._workers.values() if worker.phase is Phase.READY]
        following = training.next_members(ready, lambda number: self._slots.allowed(self._workers[number].slot.id))
        if following is None:
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
            self._out.append(Tell(number, message))

    def _end_training(self) -> None:
        """When the last worker of a finished training is gone, everybody hears of it and the slots are free."""
        training = self._training
        if training is None or training.updates is None or self._workers:
            return
        self._training = None
        self._trainings += 1
        self._updates += training.updates
        self._send(control.TrainingEnded(training=training.number, updates=training.updates))
        for slot in self._slots.held:
            self._release(slot)
        self._out.append(Tell(DRIVER, link.TrainingDone(training=training.number, updates=training.updates)))

    def _begin_end(self, state: JobState, message: str, *, silent: bool = False) -> None:
        if self._ending is None:
            self._ending = Ending(state)
            self._ending.blame(message, silent=silent)

    def _wind_up(self, ending: Ending) -> None:
        """Workers first, then the driver, then the report."""
        for worker in self._workers.values():
            if worker.phase is not Phase.ENDING:
                worker.phase = Phase.ENDING
                self._end(worker.number, FAILED_PATIENCE if worker.failed is not None else 0.0)
        at_once = ending.state is JobState.KILLED
        if self._driver.runs and not ending.driver_told:
            if self._workers and not at_once:
                return
            ending.driver_told = True
            if self._training is not None and not at_once:
                failed = link.TrainingFailed(training=self._training.number, message=ending.message)
                self._out.append(Tell(DRIVER, failed))
                self._end(DRIVER, FAILED_PATIENCE)
            else:
                self._end(DRIVER, 0.0)
        if not self._workers and not self._driver.runs:
            self._over = True
            if ending.reported:
                self._send(JobEnded(state=ending.state, message=ending.message))
            self._out.append(Finish())

    # --- small change -------------------------------------------------------------------------------------------------

    def _begin(self, worker: Worker, training: Training) -> None:
        worker.phase = Phase.PREPARING
        self._out.append(Tell(worker.number, link.Begin(training=training.number, payload=training.payload)))

    def _release(self, slot: int) -> None:
        worker, code = self._exits.pop(slot, (None, None))
        self._send(SlotReleased(slot=slot, worker=worker, exit_code=code))
        self._slots.release(slot, self._reports)

    def _send(self, report: control.Report) -> None:
        self._reports += 1
        self._out.append(Send(self._reports, report))

    def _end(self, process: int, patience: float) -> None:
        self._out.append(End(process, patience))

    def _note(self, text: str) -> None:
        self._out.append(Note(text))

    def _name(self, worker: Worker) -> str:
        rank = self._training.rank(worker.number) if self._training is not None else None
        return wording.worker_name(worker.number, rank, worker.slot.id)
