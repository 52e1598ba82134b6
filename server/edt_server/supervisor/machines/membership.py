"""The job's state machine: events in, instructions out. No clock, no I/O.

Here is what an event changes; what follows from the state afterwards is `settling.py`'s. A death costs the job nothing
but an attempt (`attempts`); who comes next is `generation`'s to say.
"""

from __future__ import annotations

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.machines import wording
from edt_server.supervisor.machines.attempts import Kind
from edt_server.supervisor.machines.casualties import Fatal, could_not_start, judge, judge_driver, name_of, not_started
from edt_server.supervisor.machines.events import (
    DRIVER,
    Event,
    Exited,
    Gathered,
    Hung,
    Kill,
    LinkLost,
    LookAgain,
    LookedAgain,
    NotStarted,
    Publish,
    Said,
    Scarce,
    Started,
    Tell,
)
from edt_server.supervisor.machines.generation import Training
from edt_server.supervisor.machines.patience import EXIT_PATIENCE, FAILED_PATIENCE
from edt_server.supervisor.machines.requests import Answer, answer
from edt_server.supervisor.machines.roster import OUTSIDE, Driver, DriverPhase, Phase, Worker, progress_of
from edt_server.supervisor.machines.settling import Settling
from edt_server.supervisor.machines.verdict import Past, end_kind, worker_cause

LINK_LOST_PATIENCE = 5.0
LEFT_PATIENCE = 10.0
TRAINED_PATIENCE = 30.0


class Membership(Settling):
    """One job; see `Settling` for its arguments."""

    def _hear(self, event: Event) -> None:
        match event:
            case Started() | NotStarted() | Said() | LinkLost() | Exited() if event.process in self._standbys.workers:
                self._out += self._standbys.hear(event.process, event, self._training)
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
            case Exited(process=process, updates=updates):
                if updates is not None and self._training is not None:
                    self._attempts.progress(updates)
                if process == DRIVER:
                    self._driver_exited(event)
                elif process in self._workers:
                    self._worker_exited(self._workers.pop(process), event)
            case Hung(process=process, why=why) if process in self._workers:
                self._workers[process].hung = why
                self._out.append(Kill(process, 0.0))
            case Gathered(generation=generation):
                if self._training is not None and self._training.generation == generation:
                    self._training.gathered = True
            case LookedAgain(generation=generation):
                self._nobody_died(generation)
            case Scarce():
                self._out += self._standbys.scarce()

    # --- what happened ------------------------------------------------------------------------------------------------

    def _started(self, process: int, pid: int) -> None:
        if process == DRIVER:
            self._driver.pid = pid
            self._driver_ran = True
            self._send(control.DriverStarted(pid=pid))
            if self._ending is not None and self._ending.driver_told:
                self._end(DRIVER, 0.0)
        else:
            worker = self._workers[process]
            worker.pid = pid
            self._send(control.WorkerStarted(worker=worker.number, slot=worker.slot.id, pid=pid))
            if worker.phase is Phase.ENDING:
                self._end(process, 0.0)  # said before there was anybody to end

    def _not_started(self, process: int, why: str) -> None:
        if process == DRIVER:
            self._driver.phase = DriverPhase.GONE
            self._begin_end(JobState.ERROR, why)
            return
        worker = self._workers.pop(process)
        if worker.phase is not Phase.ENDING and self._ending is None:
            self._count(worker, not_started(worker, why, training=self._training, attempts=self._attempts))
        if worker.revoked and self._ending is None:
            self._release(worker.slot.id)

    def _driver_said(self, message: link.Upward) -> None:
        match message:
            case link.DriverHello():
                self._driver.phase = DriverPhase.TALKING
            case link.TrainRequest() if self._ending is None:
                self._train(message)
            case link.Scaled(training=training, workers=workers) if self._training is not None:
                if training == self._training.number:
                    workers = min(max(workers, 1), self._training.shards)
                    self._send(control.TrainingScaled(training=training, workers=workers))
            case link.Failed():
                self._driver.failed = message
                self._end(DRIVER, FAILED_PATIENCE)
            case _:
                self._note(f"the driver sent a {type(message).__name__}: ignored")

    def _train(self, request: link.TrainRequest) -> None:
        running = None if self._training is None else self._training.number
        match answer(request.training, done=len(self._done), running=running):
            case Answer.DONE:
                updates = self._done[request.training]
                self._out.append(Tell(DRIVER, link.TrainingDone(training=request.training, updates=updates)))
            case Answer.ATTACH:
                self._note(f"the main script is back at training {request.training}, which goes on as it is")
            case Answer.REFUSE:
                self._begin_end(JobState.FAILED, wording.out_of_turn(request.training, len(self._done), running))
            case Answer.BEGIN:
                self._training = Training(request.training, request.payload, request.shards, request.epochs)
                self._attempts.begin()
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
            case link.Joined(update=update) if training is not None and worker.takes_part:
                self._attempts.progress(update)
                self._joined(worker, message, training)
            case link.Broken(update=update) if training is not None and worker.takes_part:
                self._attempts.progress(update)
                if training.updates is not None:
                    self._end(worker.number, 0.0)  # only the last meeting was still to come
                elif message.generation == training.generation:
                    self._out.append(LookAgain(training.generation))
            case link.Left(update=update):
                self._attempts.progress(update)
                worker.left = True
                self._end(worker.number, LEFT_PATIENCE)
            case link.Progress(update=update) if training is not None and message.training == training.number:
                self._attempts.progress(update)
                self._out.append(Publish(progress_of(message)))
            case link.Trained() if training is not None and message.training == training.number:
                self._trained(training, message)
            case link.Failed():
                worker.failed = message
                if worker.phase is not Phase.ENDING:
                    self._end(worker.number, FAILED_PATIENCE)
            case _:
                self._note(f"worker {worker.number} ({worker.phase.value}) sent a {type(message).__name__}: ignored")

    def _joined(self, worker: Worker, message: link.Joined, training: Training) -> None:
        if message.generation != training.generation or worker.number not in training.joining:
            return
        training.joining.discard(worker.number)
        if training.joining or training.broken:
            return
        for number in training.members:
            self._attempts.became_member(self._workers[number].slot.id)
        training.began = message.update
        self._send(training.formed(self._workers, message.update))

    def _nobody_died(self, generation: int) -> None:
        """The group of this generation broke and all its members live: they are put together anew."""
        training = self._training
        if training is None or training.generation != generation or training.broken or training.updates is not None:
            return
        if not training.members or self._crew.somebody_dies:
            return
        times = self._attempts.member_ended(Kind.OUTSIDE, generation)
        if times:
            self._begin_end(JobState.FAILED, wording.torn_network(times))
        else:
            self._note(f"generation {generation} broke although all its members live")
            training.broken = True

    def _trained(self, training: Training, message: link.Trained) -> None:
        training.updates = message.updates
        self._attempts.progress(message.updates)
        for worker in self._workers.values():
            if worker.takes_part:
                self._end(worker.number, TRAINED_PATIENCE)
            elif worker.phase in OUTSIDE:
                worker.phase = Phase.ENDING
                self._end(worker.number, 0.0)

    def _link_lost(self, event: LinkLost) -> None:
        if event.process in self._workers:
            worker = self._workers[event.process]
            worker.lost = event.why
            if self._may_end(worker):
                self._end(event.process, LINK_LOST_PATIENCE)
            elif worker.failed is None:
                self._out.append(Kill(event.process, EXIT_PATIENCE))
        elif event.process == DRIVER and self._driver.runs:
            self._driver.lost = event.why
            if self._training is not None:
                self._end(DRIVER, LINK_LOST_PATIENCE)

    def _driver_exited(self, event: Exited) -> None:
        running = None if self._training is None else self._training.number
        past = Past(self._interpreter, running, len(self._done), sum(self._done))
        what = judge_driver(self._driver, event, past, self._attempts, wanted=self._ending is None)
        if isinstance(what, control.DriverLost):
            self._send(what)
            self._driver = Driver()
        else:
            self._driver.phase = DriverPhase.GONE
            self._begin_end(what.state, what.message, silent=what.silent)

    def _worker_exited(self, worker: Worker, event: Exited) -> None:
        training = self._training
        self._exits[worker.slot.id] = (worker.number, event.code)
        if self._ending is not None:
            cause = worker_cause(worker, name_of(worker, training), event) if event.code != 0 else None
            if cause is not None:
                self._ending.blame(cause.message, silent=cause.silent)
            return
        if not self._may_end(worker) and worker.phase is not Phase.LEAVING:
            self._worker_died(worker, event, training)
        elif event.code != 0 and worker.phase is not Phase.ENDING:
            who = name_of(worker, training)
            self._note(f"{who} {wording.how_it_ended(event.code)} when it was no longer needed")
        if training is not None:
            training.gone(worker.number, left=worker.left)
        if worker.revoked and self._ending is None:
            self._release(worker.slot.id)

    def _may_end(self, worker: Worker) -> bool:
        """True when the worker's end is no loss."""
        done = self._training is not None and self._training.updates is not None
        return worker.phase is Phase.ENDING or worker.left or done

    def _worker_died(self, worker: Worker, event: Exited, training: Training | None) -> None:
        """Its slot is filled again and the others go on, unless that has led nowhere too often."""
        trained = bool(self._done) or (training is not None and training.generation > 0)
        if worker.hello is None and not trained and end_kind(worker, event) is Kind.OWN:
            self._count(worker, could_not_start(worker, event, interpreter=self._interpreter))
        else:
            self._count(worker, judge(worker, event, training=training, attempts=self._attempts))

    def _count(self, worker: Worker, what: control.WorkerLost | Fatal) -> None:
        if isinstance(what, Fatal):
            self._begin_end(what.state, what.message, silent=what.silent)
            return
        self._send(what)
        if worker.slot.id in self.given_up:
            self._note(
                f"no worker of slot {worker.slot.id} gets as far as the training: it stays empty while others train"
            )
