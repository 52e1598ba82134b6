"""Decide for an elastic job: a state machine, events in, instructions out. No clock, no I/O.

First an event changes the state. Then `_settle` does what follows from the state, whatever the event was, so that the
order in which things become known does not matter:

- the next generation, when the last change is complete or a member is lost,
- a worker for every granted slot,
- a release for every revoked slot when its worker is gone,
- the end of a training when its workers are gone.

A death costs the job one of its `attempts`. `generation` chooses the next members.
"""

from __future__ import annotations

import msgspec

from edt_sdk.schemas.job import JobProgress, JobState
from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines import events, exits, wording
from edt_server.supervisor.state_machines.attempts import Attempts, DeathCause
from edt_server.supervisor.state_machines.ending import EXIT_GRACE, FAILED_GRACE
from edt_server.supervisor.state_machines.events import DRIVER
from edt_server.supervisor.state_machines.generation import TrainingRun
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.machine import Machine
from edt_server.supervisor.state_machines.standbys import Standbys
from edt_server.supervisor.state_machines.worker_group import (
    OUTSIDE,
    Driver,
    DriverPhase,
    Worker,
    WorkerGroup,
    WorkerPhase,
)

LINK_LOST_GRACE = 5.0
# Seconds to write a stack, for which a process of a busy machine needs a moment.
STACK_GRACE = 3.0
LEFT_GRACE = 10.0
TRAINED_GRACE = 30.0


class JobMembership(Machine):
    """The state machine of a job with elastic workers, and with so many standby workers at most.

    `home` is the host with the job's files, where rank 0 has to be. Without a slot there the job goes on elsewhere,
    with another supervisor. "" where every host has them.
    """

    def __init__(self, *, interpreter: str, history: History | None = None, standbys: int = 0, home: str = "") -> None:
        past = History() if history is None else history
        super().__init__(past)
        self._home = home
        self._interpreter = interpreter
        self._group = WorkerGroup(past.workers)
        self._workers = self._group.workers  # the same dictionary
        self._standbys = Standbys(standbys)
        self._driver = Driver()
        self._driver_ran = past.driver_ran
        self._training = past.running
        self._published: link.Generation | None = None
        self._done = list(past.trainings)
        self._attempts = Attempts(past.committed, ever=any(past.trainings))

    @property
    def taking_part(self) -> frozenset[int]:
        """Workers that should make progress: they are in the newest generation, or leaving an older one."""
        training = self._training
        # Members that hold wait for the server, however long that takes.
        idle = training is None or training.updates is not None or training.held
        return frozenset() if idle else self._group.taking_part

    @property
    def training(self) -> bool:
        """True while updates are to be made: more workers may be needed at any time."""
        return self._ending is None and self._training is not None and self._training.updates is None

    @property
    def processes(self) -> dict[int, int]:
        """The pids of the workers with running processes, by worker."""
        return self._group.pids

    @property
    def given_up(self) -> frozenset[int]:
        """Slots that stay empty although they are granted: no worker in them gets as far as the training."""
        training = self._training
        if training is None or not training.members:
            return frozenset()
        at_home = {slot.id for slot in self._slots.granted if self._home and slot.host == self._home}
        return self._attempts.given_up - at_home

    @property
    def committed(self) -> int:
        """Updates of the running training that are known to be committed."""
        return self._attempts.committed

    @property
    def _moves(self) -> bool:
        """Whether the job has slots, but none where its files are."""
        granted = self._slots.granted
        return bool(self._home and granted) and all(slot.host != self._home for slot in granted)

    def _hear(self, event: events.MachineEvent) -> None:
        match event:
            case events.Started() | events.NotStarted() | events.Received() | events.LinkLost() | events.Exited() if (
                event.process in self._standbys.workers
            ):
                self._out += self._standbys.hear(event.process, event, self._training)
            case events.Started(process=process, pid=pid):
                self._started(process, pid)
            case events.NotStarted(process=process, why=why):
                self._not_started(process, why)
            case events.Received(process=process, message=message):
                if process == DRIVER:
                    self._on_driver_message(message)
                elif process in self._workers:
                    self._on_worker_message(self._workers[process], message)
            case events.LinkLost():
                self._link_lost(event)
            case events.Exited(process=process, updates=updates):
                if updates is not None and self._training is not None:
                    self._attempts.progress(updates)
                if process == DRIVER:
                    self._driver_exited(event)
                elif process in self._workers:
                    self._worker_exited(self._workers.pop(process), event)
            case events.Hung(process=process, why=why, own=own) if process in self._workers:
                worker = self._workers[process]
                worker.hung, worker.hung_by_itself = why, own
                # Of a process that hangs by itself the stack shows where: the job's owner needs it to mend the code.
                self._kill(process, STACK_GRACE if own else 0.0, stack=own)
            case events.Gathered(generation=generation):
                if self._training is not None and self._training.generation == generation:
                    self._training.gathered = True
            case events.Rechecked(generation=generation):
                self._on_recheck(generation)
            case events.MemoryScarce():
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
            if worker.phase is WorkerPhase.ENDING:
                self._end(process, 0.0)  # it had to end before its process existed

    def _not_started(self, process: int, why: str) -> None:
        if process == DRIVER:
            self._driver.phase = DriverPhase.GONE
            self._begin_end(JobState.ERROR, why)
            return
        worker = self._workers.pop(process)
        if worker.phase is not WorkerPhase.ENDING and self._ending is None:
            self._count(worker, exits.not_started(worker, why, training=self._training, attempts=self._attempts))
        if worker.revoked and self._ending is None:
            self._release(worker.slot.id)

    def _on_driver_message(self, message: link.Upward) -> None:
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
                self._end(DRIVER, FAILED_GRACE)
            case _:
                self._note(f"the driver sent a {type(message).__name__}: ignored")

    def _train(self, request: link.TrainRequest) -> None:
        # A restarted driver runs its whole script again, so its k-th call of `train()` may come a second time: that
        # training is finished, or running, or next. Any other number means a script that trains in two threads.
        number, finished = request.training, len(self._done)
        running = None if self._training is None else self._training.number
        if 0 <= number < finished:
            self._tell(DRIVER, link.TrainingDone(training=number, updates=self._done[number]))
        elif number == running:
            self._note(f"the main script is back at training {number}, which goes on as it is")
        elif running is not None or number != finished:
            self._begin_end(JobState.FAILED, wording.out_of_turn(number, finished, running))
        else:
            self._training = TrainingRun(number, request.payload, request.shards, request.epochs)
            self._attempts.begin()
            self._send(control.TrainingStarted(training=number, shards=request.shards, epochs=request.epochs))
            for worker in self._workers.values():
                if worker.phase is WorkerPhase.IDLE:
                    self._begin(worker, self._training)

    def _on_worker_message(self, worker: Worker, message: link.Upward) -> None:
        training = self._training
        match message:
            case link.WorkerHello() if worker.phase is WorkerPhase.STARTING:
                worker.hello = message
                worker.phase = WorkerPhase.IDLE
                if training is not None and self._ending is None:
                    self._begin(worker, training)
            case link.WorkerReady() if worker.phase is WorkerPhase.PREPARING:
                worker.phase = WorkerPhase.READY
            case link.Joined(update=update) if training is not None and worker.takes_part:
                self._attempts.progress(update)
                worker.joined = True
                self._joined(worker, message, training)
            case link.Broken(update=update) if training is not None and worker.takes_part:
                self._attempts.progress(update)
                if training.updates is not None:
                    self._end(worker.number, 0.0)  # only the last meeting of the group was left to do
                elif message.generation == training.generation:
                    self._out.append(events.Recheck(training.generation))
            case link.Left(update=update):
                self._attempts.progress(update)
                worker.left = True
                self._end(worker.number, LEFT_GRACE)
            case link.Progress(update=update) if training is not None and message.training == training.number:
                self._attempts.progress(update)
                self._out.append(events.Publish(msgspec.convert(message, JobProgress, from_attributes=True)))
            case link.EpochMeasured() if training is not None and message.training == training.number:
                self._validated(training, message)
            case link.Held() if training is not None and message.generation == training.generation:
                self._held(training, message.epoch)
            case link.Trained() if training is not None and message.training == training.number:
                self._trained(training, message)
            case link.Failed():
                worker.failed = message
                if worker.phase is not WorkerPhase.ENDING:
                    self._end(worker.number, FAILED_GRACE)
            case _:
                self._note(f"worker {worker.number} ({worker.phase.value}) sent a {type(message).__name__}: ignored")

    def _joined(self, worker: Worker, message: link.Joined, training: TrainingRun) -> None:
        # The answer to an older generation: another has been published since.
        if message.generation != training.generation or worker.number not in training.joining:
            return
        training.joining.discard(worker.number)
        if training.joining or training.broken:
            return
        for number in training.members:
            self._attempts.became_member(self._workers[number].slot.id)
        training.began = message.update
        self._send(training.formed(self._workers, message.update))

    def _validated(self, training: TrainingRun, message: link.EpochMeasured) -> None:
        # Each rank 0 repeats the newest one, and after a loss of all members an epoch is computed again.
        if training.validated < message.epoch <= training.epochs:
            training.validated = message.epoch
            report = msgspec.convert(message, control.EpochValidated, from_attributes=True)
            self._send(report)

    def _held(self, training: TrainingRun, epoch: int) -> None:
        if training.budget is not None and training.budget <= epoch < training.epochs:
            training.held = True
            self._send(control.BudgetReached(training=training.number, epoch=epoch, epochs=training.epochs))

    def _on_recheck(self, generation: int) -> None:
        """Form a new generation when the group broke although all its members live."""
        training = self._training
        if training is None or training.generation != generation or training.broken or training.updates is not None:
            return
        if not training.members or self._group.any_dying:
            return
        times = self._attempts.member_ended(DeathCause.OUTSIDE, generation)
        # Not every break has a dead process: a connection between living members can fail too. The limit on outside
        # causes counts here, or a broken network would make the group form again for ever.
        if times:
            self._begin_end(JobState.FAILED, wording.torn_network(times))
        else:
            self._note(f"generation {generation} broke although all its members live")
            training.broken = True

    def _trained(self, training: TrainingRun, message: link.Trained) -> None:
        training.updates = message.updates
        self._attempts.progress(message.updates)
        for worker in self._workers.values():
            if worker.takes_part and worker.joined:
                # It exits by itself after the last meeting of the group.
                self._end(worker.number, TRAINED_GRACE)
            elif worker.takes_part or worker.phase in OUTSIDE:
                # A worker that waits for its first group may wait for members that have exited.
                worker.phase = WorkerPhase.ENDING
                self._end(worker.number, 0.0)

    def _link_lost(self, event: events.LinkLost) -> None:
        if event.process in self._workers:
            worker = self._workers[event.process]
            worker.lost = event.why
            if self._may_end(worker):
                self._end(event.process, LINK_LOST_GRACE)
            elif worker.failed is None:
                # Not at once: a worker that exits by itself closes its link first, and its exit code shows the cause.
                self._kill(event.process, EXIT_GRACE)
        elif event.process == DRIVER and self._driver.runs:
            self._driver.lost = event.why
            if self._training is not None:
                self._end(DRIVER, LINK_LOST_GRACE)

    def _driver_exited(self, event: events.Exited) -> None:
        running = None if self._training is None else self._training.number
        past = exits.Past(self._interpreter, running, len(self._done), sum(self._done))
        what = exits.judge_driver(self._driver, event, past, self._attempts, wanted=self._ending is None)
        if isinstance(what, control.DriverLost):
            self._send(what)
            self._driver = Driver()  # `_fill_slots` starts it again
        else:
            self._driver.phase = DriverPhase.GONE
            self._begin_end(what.state, what.message, silent=what.silent)

    def _worker_exited(self, worker: Worker, event: events.Exited) -> None:
        training = self._training
        self._exits[worker.slot.id] = (worker.number, event.code)
        if self._ending is not None:
            cause = exits.worker_cause(worker, exits.name_of(worker, training), event) if event.code != 0 else None
            if cause is not None:
                self._ending.blame(cause.message, silent=cause.silent)
            return
        if not self._may_end(worker) and worker.phase is not WorkerPhase.LEAVING:
            self._worker_died(worker, event, training)
        elif event.code != 0 and worker.phase is not WorkerPhase.ENDING:
            who = exits.name_of(worker, training)
            self._note(f"{who} {wording.how_it_ended(event.code)} when it was no longer needed")
        if training is not None:
            training.gone(worker.number, left=worker.left)
            self._tell_losses(training)
        if worker.revoked and not (self._moves and self._slots.allowed(worker.slot.id)):
            self._release(worker.slot.id)

    def _may_end(self, worker: Worker) -> bool:
        """Return whether the worker's exit is no loss."""
        done = self._training is not None and self._training.updates is not None
        return worker.phase is WorkerPhase.ENDING or worker.left or done

    def _worker_died(self, worker: Worker, event: events.Exited, training: TrainingRun | None) -> None:
        """Count the death, so that the slot is filled again and the others continue, unless the limit is reached."""
        trained = bool(self._done) or (training is not None and training.generation > 0)
        if worker.hello is None and not trained and exits.end_kind(worker, event) is DeathCause.OWN:
            # It exited by itself before its hello, in a job that never trained: its Python is broken.
            name = exits.name_of(worker, None)
            what = wording.never_spoke(name, self._interpreter, event.code, event.words)
            self._count(worker, exits.Fatal(JobState.ERROR, what, silent=True))
        else:
            self._count(worker, exits.judge(worker, event, training=training, attempts=self._attempts))

    def _count(self, worker: Worker, what: control.WorkerLost | exits.Fatal) -> None:
        if isinstance(what, exits.Fatal):
            self._begin_end(what.state, what.message, silent=what.silent)
            return
        self._send(what)
        if worker.slot.id in self.given_up:
            self._note(
                f"no worker of slot {worker.slot.id} gets as far as the training: it stays empty while others train"
            )

    def _begin(self, worker: Worker, training: TrainingRun) -> None:
        worker.phase = WorkerPhase.PREPARING
        self._tell(worker.number, training.begin())

    # --- what follows -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._ending is None:
            # The order matters. Revoked workers go first, standbys get empty slots before the next generation is
            # formed, so that they are in it, and only the slots that are still empty get a new process.
            self._end_training()
            self._end_revoked()
            self._assign_standbys()
            self._part()
            self._change_generation()
            self._fill_slots()
            self._keep_standbys()
            if self._moves and not self._workers:
                # What is left is the driver, and the next supervisor starts it again.
                self.over = True
                self._send(control.Relocated(host=self._home))
                self._out.append(events.Finish(over=False))
        if self._ending is not None:
            processes = (*self._workers.values(), *self._standbys.workers.values())
            self._out += self._ending.wind_up(processes, self._driver, self._training)
            if not processes and not self._driver.runs:
                self._finish(self._ending)

    def _end_revoked(self) -> None:
        for worker in self._workers.values():
            if worker.phase in OUTSIDE and (self._moves or not self._slots.allowed(worker.slot.id)):
                worker.phase, worker.revoked = WorkerPhase.ENDING, True
                self._end(worker.number, 0.0)

    def _fill_slots(self) -> None:
        """Start a driver once there is a slot, and a worker in every granted slot. Release empty revoked slots."""
        granted = self._slots.granted
        # A driver that ran for an earlier supervisor may not need a slot any more.
        if self._driver.phase is DriverPhase.NONE and (granted or (self._driver_ran and self._slots.known)):
            self._driver.phase = DriverPhase.STARTED
            self._out.append(events.StartDriver())
        self._release_revoked(self._group.slots)
        for slot_granted in self._empty_slots():
            self._out.append(events.StartWorker(self._group.add(slot_granted).number, slot_granted))

    def _empty_slots(self) -> list[Slot]:
        """Return the granted slots that should have a worker and have none."""
        training = self._training
        if (training is None and self._done) or (training is not None and training.updates is not None) or self._moves:
            return []
        filled = self._group.slots | self.given_up
        return [slot for slot in self._slots.granted if slot.id not in filled]

    def _assign_standbys(self) -> None:
        """Give empty slots to standbys: before the next generation, so that they are in it."""
        for slot in self._empty_slots():
            worker = self._standbys.take(slot)
            if worker is not None:
                self._workers[worker.number] = worker
                self._out.append(events.AssignStandby(worker.number, slot))
                if worker.pid is not None:
                    self._send(control.WorkerStarted(worker=worker.number, slot=slot.id, pid=worker.pid))

    def _keep_standbys(self) -> None:
        """Keep as many standbys as there should be. Start another standby only while the members train undisturbed."""
        wanted = self._standbys.wanted(self._training, self._slots.granted, self._asked)
        self._out += self._standbys.keep(wanted)
        training = self._training
        if training is None or training.changing or training.broken or self._group.preparing:
            return
        # Not before an update of the newest generation: its first update competes for the same cores.
        if self.committed > training.began and self._standbys.short_of(wanted):
            number = self._group.new_number()
            self._standbys.add(number)
            self._out.append(events.StartStandby(number))

    def _part(self) -> None:
        """Break a generation with members that do not reach each other: a planned change would wait for an update."""
        training = self._training
        for number in () if training is None else training.members:
            if training is not None and self._workers[number].slot.host in self._apart and number not in training.lost:
                training.lost, training.broken = (*training.lost, number), True

    def _change_generation(self) -> None:
        training = self._training
        if training is None or self._group.any_dying:
            # A dying member may still commit an update or write a checkpoint. A generation that starts before its exit
            # is known could redo an update that is committed already.
            return
        moves = self._moves
        following = training.next_members(
            () if moves else self._group.ready,
            lambda number: not moves and self._slots.allowed(self._workers[number].slot.id),
            lambda number: self._workers[number].slot.host,
            self._budget,
            suspended=moves or not self._slots.granted,
            home=self._home,
        )
        if following is None or self._gathers(training, following):
            return
        before, lost = training.members, training.lost
        told = training.change(following, self._budget)
        self._published = message = link.Generation(
            training=training.number,
            number=training.generation,
            members=tuple(self._workers[number].member(fresh=number not in before) for number in following),
            budget=self._budget,
            gone=lost,
        )
        for number in told:
            worker = self._workers[number]
            worker.phase = WorkerPhase.MEMBER if number in following else WorkerPhase.LEAVING
            worker.revoked = number not in following
            if not worker.left:
                self._tell(number, message)

    def _tell_losses(self, training: TrainingRun) -> None:
        """Repeat the newest generation when a leaver has died: members still to join may wait for it in the last one.

        The death of a member leads to a generation of its own.
        """
        if training.lost and not training.broken and self._published is not None:
            self._published = msgspec.structs.replace(self._published, gone=training.lost)
            for number in sorted(training.joining):
                self._tell(number, self._published)

    def _gathers(self, training: TrainingRun, following: tuple[int, ...]) -> bool:
        """Return whether a change that only adds members waits a moment for workers that are starting."""
        # Only a planned growth waits, so that slots that are granted together cost one change. A death changes the
        # members at once (decision 010), and so does more budget, for which they may wait.
        if training.broken or not training.members or not set(training.members) <= set(following):
            return False
        if training.budget != self._budget:
            return False
        coming = (*self._group.preparing, *(slot.id for slot in self._empty_slots()))
        if training.gathered or not any(self._slots.allowed(slot) for slot in coming):
            return False
        if not training.gathering:
            training.gathering = True
            self._out.append(events.Gather(training.generation))
        return True

    def _end_training(self) -> None:
        """Report the end of a finished training and release its slots when its last worker has exited."""
        training = self._training
        if training is None or training.updates is None or self._workers:
            return
        self._training = None
        self._done.append(training.updates)
        self._send(control.TrainingEnded(training=training.number, updates=training.updates))
        # Between trainings the job holds no slot, because its driver needs none.
        for slot in self._slots.held:
            self._release(slot)
        self._tell(DRIVER, link.TrainingDone(training=training.number, updates=training.updates))
