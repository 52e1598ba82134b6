"""A small random world for the membership machine: a server that is always a bit behind, workers that take their time,
and everything that can die, dying at any moment. Workers ahead of their slots die with the rest.

Checked after every instruction: reports are numbered without gaps, a planned change waits for the one before, a
recovery for every dying member, no generation has more members than shards or one that is gone, no worker is started in
a slot that the server could have given to somebody else, every slot is released exactly as often as it was granted. At
the end the world comes to rest, with everybody who may train training, or with one report of the end.
"""

from collections import deque

import msgspec
from hypothesis import strategies as st

from edt_sdk.schemas.wire import control, link
from edt_server.supervisor.state_machines.events import (
    DRIVER,
    AssignStandby,
    End,
    Exited,
    Finish,
    Gather,
    Gathered,
    Hung,
    Kill,
    LinkLost,
    Received,
    Recheck,
    Rechecked,
    SendMessage,
    SendReport,
    StartDriver,
    Started,
    StartStandby,
    StartWorker,
)
from edt_server.supervisor.state_machines.membership import JobMembership
from tests.server.supervisor.world_server import EPOCHS, WorldOfSlots
from tests.server.supervisor.world_workers import Process, WorldOfWorkers

SHARDS = 3
STANDBYS = 2


class World(WorldOfSlots, WorldOfWorkers):
    def __init__(self):
        self.machine = JobMembership(interpreter="/usr/bin/python", standbys=STANDBYS)
        self.events = deque()
        self.reports = 0
        self.to_server = deque()
        self.to_supervisor = deque()
        self.held, self.leaving, self.version, self.demand = set(), set(), 0, True
        self.budget = 1
        """Epochs after which the training may hold, which it does as late as it likes. None when it may not."""
        self.workers = {}
        self.standbys = {}
        self.driver = "none"
        self.asked = False
        """The driver that runs now has called the training under way."""
        self.calls = 0
        """Trainings that the driver that runs now has seen the end of."""
        self.trainings = 0
        self.in_training = False
        self.trained = False
        self.committed = 0
        self.generation = None
        self.to_join, self.to_leave = set(), set()
        self.broke = False
        self.looks = deque()
        self.gathers = deque()
        self.ended = None
        self.finished = False

    @property
    def processes(self):
        """All but the driver's."""
        return {**self.workers, **self.standbys}

    # --- the machine's surroundings

    def feed(self, event):
        self.events.append(event)
        while self.events:
            for instruction in self.machine.apply(self.events.popleft()):
                self.follow(instruction)

    def follow(self, instruction):
        match instruction:
            case StartDriver():
                assert self.driver in ("none", "gone")
                self.driver, self.asked, self.calls = "started", False, 0
                self.events.append(Started(DRIVER, 1))
            case StartWorker(worker=worker, slot=slot):
                assert slot.id in self.held | self.leaving, "started in a slot that is not the job's"
                assert all(process.slot != slot.id for process in self.workers.values()), "two workers in a slot"
                self.workers[worker] = Process(worker, slot.id)
                self.events.append(Started(worker, 100 + worker))
            case StartStandby(worker=worker):
                self.standbys[worker] = Process(worker, None)
                assert len(self.standbys) <= STANDBYS
                assert self.in_training
                assert self.held | self.leaving, "suspended"
                self.events.append(Started(worker, 100 + worker))
            case AssignStandby(worker=worker, slot=slot):
                assert slot.id in self.held | self.leaving, "assigned a slot that is not the job's"
                assert all(process.slot != slot.id for process in self.workers.values()), "two workers in a slot"
                process = self.workers[worker] = self.standbys.pop(worker)
                process.slot = slot.id
            case SendMessage(process=process, message=message) if process == DRIVER:
                self.tell_driver(message)
            case SendMessage(process=process, message=message):
                if isinstance(message, link.Generation):
                    self.check_generation(message)
                if process in self.standbys:
                    assert isinstance(message, link.Begin), "a standby is in no generation"
                if process in self.processes:
                    self.processes[process].inbox.append(message)
            case SendReport(number=number, report=report):
                self.report(number, report)
            case End(process=process) | Kill(process=process):
                if process in self.processes:
                    self.processes[process].told_to_end = True
                elif process == DRIVER and self.driver != "gone":
                    self.driver = "ending"
            case Recheck(generation=generation):
                self.looks.append(generation)
            case Gather(generation=generation):
                self.gathers.append(generation)
            case Finish():
                self.finished = True

    def tell_driver(self, message):
        if isinstance(message, link.TrainingDone) and self.driver == "talking":
            assert message.training == self.calls
            self.calls += 1
            self.asked = False

    def report(self, number, report):
        self.reports += 1
        assert number == self.reports
        assert self.ended is None, "a report after the last one"
        match report:
            case control.JobEnded():
                assert not self.processes
                self.ended = report
            case control.SlotReturned(slot=slot):
                assert all(process.slot != slot for process in self.workers.values())
            case control.WorkerLost(worker=worker):
                assert worker not in self.workers
            case control.TrainingStarted(training=training):
                assert training == self.trainings, "reported twice"
                self.in_training, self.trained, self.committed = True, False, 0
            case control.TrainingEnded():
                assert not self.workers
                self.in_training = False
                self.trainings += 1
        self.to_server.append((number, report))

    def check_generation(self, message):
        members = tuple(member.worker for member in message.members)
        if message == self.generation or self.adds_losses(message):
            self.generation = message
            return
        before = ()
        if self.generation is not None and self.generation.training == message.training:
            before = tuple(m.worker for m in self.generation.members)
            assert message.number == self.generation.number + 1
        else:
            assert message.number == 1
            self.broke = False
        alive = set(self.workers)
        if not self.broke:
            assert not self.to_join & alive, f"changed before all had joined: {self.to_join}"
            assert not self.to_leave & alive, f"changed before all had left: {self.to_leave}"
        dying = {process.worker for process in self.workers.values() if process.lost and process.group}
        assert not dying, "an older generation may still be written by one that dies"
        assert set(members) <= alive
        survivors = tuple(worker for worker in before if worker in members)
        assert members[: len(survivors)] == survivors
        assert list(members[len(survivors) :]) == sorted(members[len(survivors) :])
        assert [member.fresh for member in message.members] == [worker not in before for worker in members]
        assert len(members) <= SHARDS
        self.to_leave = ((self.to_leave | set(before)) - set(members)) & alive
        self.generation, self.to_join, self.broke = message, set(members), False

    def adds_losses(self, message):
        """The newest generation once more, because a worker that those still to join may wait for is gone."""
        if self.generation is None or msgspec.structs.replace(self.generation, gone=message.gone) != message:
            return False
        told = len(self.generation.gone)
        assert message.gone[:told] == self.generation.gone
        members = {member.worker for member in message.members}
        assert not set(message.gone[told:]) & (set(self.workers) | members), "gone, and still here or a member"
        assert self.to_join, "everybody has joined"
        return True

    # --- what may happen next

    def actions(self, *, calm=False):
        found = []
        if self.to_server:
            found.append(self.take_report)
        if self.to_supervisor:
            found.append(lambda: self.feed(self.to_supervisor.popleft()))
        if self.gathers:
            found.append(lambda: self.feed(Gathered(self.gathers.popleft())))
        if self.looks:
            found.append(self.look_again)
        for process in list(self.processes.values()):
            found.extend(self.worker_actions(process))
        if self.driver == "started":
            found.append(self.driver_hello)
        if self.driver == "talking" and not self.asked:
            known = self.calls < self.trainings or self.in_training
            if known or (not calm and self.trainings < 3):
                found.append(self.train)
        if self.driver == "ending":
            found.append(lambda: self.driver_exit(-15, (15,)))
        if not calm and self.ended is None:
            found.extend(self.server_actions())
            if self.group_is_complete() and not self.trained and not self.holding():
                found += [self.commit, self.finish_training]
                if self.generation.budget is not None:
                    found.append(self.hold)
        return found

    def disasters(self):
        """What kills: not in a calm world."""
        for process in list(self.processes.values()):
            if not process.lost:
                yield lambda process=process: self.kill(process)
                yield lambda process=process: self.lose_link(process)
                if not process.told_to_end and process.worker in self.workers:
                    for own in (False, True):
                        yield lambda process=process, own=own: self.feed(Hung(process.worker, "did not move", own))
            if process.group and not process.lost:
                yield lambda process=process: self.tear(process.group)
        if self.driver in ("started", "talking"):
            yield lambda: self.driver_exit(-9)

    def look_again(self):
        generation = self.looks.popleft()
        # A dead member's link closed before its group could break.
        for process in list(self.workers.values()):
            assert not process.lost or process.worker in self.workers
        if self.generation is not None and generation == self.generation.number:
            self.broke = True
        self.feed(Rechecked(generation))

    def driver_hello(self):
        self.driver = "talking"
        self.feed(Received(DRIVER, link.DriverHello(pid=1)))

    def driver_exit(self, code, signals=()):
        self.driver = "gone"
        self.feed(LinkLost(DRIVER, "closed"))
        self.driver = "gone"
        self.feed(Exited(DRIVER, code, signals))

    def train(self):
        self.asked = True
        self.feed(Received(DRIVER, link.TrainRequest(training=self.calls, payload="p", shards=SHARDS, epochs=EPOCHS)))

    def commit(self):
        self.committed += 1
        first = self.generation.members[0].worker
        self.feed(
            Received(
                first,
                link.Progress(
                    worker=first,
                    training=self.trainings,
                    update=self.committed,
                    total_updates=99,
                    epoch=0,
                    epochs=1,
                ),
            )
        )

    def finish_training(self):
        self.trained = True
        first = self.generation.members[0].worker
        self.feed(Received(first, link.Trained(worker=first, training=self.trainings, updates=self.committed)))

    def holding(self):
        return any(self.workers[member.worker].broken for member in self.generation.members)

    def hold(self):
        """All members have left their group and wait for a newer generation."""
        for member in self.generation.members:
            self.workers[member.worker].broken = True
        first = self.generation.members[0].worker
        held = link.Held(
            worker=first, training=self.trainings, generation=self.generation.number, epoch=self.generation.budget
        )
        self.feed(Received(first, held))

    def drain(self):
        for _ in range(5000):
            actions = self.actions(calm=True)
            if not actions:
                return
            actions[0]()
        raise AssertionError("never comes to rest")


def drive(world, data, steps, *, deadly=False):
    for _ in range(steps):
        actions = world.actions()
        disasters = list(world.disasters()) if deadly else []
        # Mostly things go well.
        choices = actions * max(1, len(disasters) * 3 // max(1, len(actions))) + disasters
        if not choices:
            return
        data.draw(st.sampled_from(choices))()


def assert_at_rest(world):
    training = world.in_training and not world.trained
    assert len(world.standbys) <= (max(0, SHARDS - len(world.held)) if training and world.held else 0)
    assert not world.leaving or world.leaving <= {process.slot for process in world.workers.values()}
    if world.in_training and not world.trained:
        used = {process.slot for process in world.workers.values()}
        assert used <= world.held
        # What its workers never got out of ready stays idle.
        assert world.held - used <= world.machine.given_up, "a slot is idle"
        if world.held:
            assert len(world.generation.members) == min(SHARDS, len(used))
            assert world.group_is_complete()
            assert not world.holding()
            assert world.generation.budget == world.budget
        else:
            assert not world.workers
        assert not world.to_join & set(world.workers)
    if not world.in_training and world.trainings:
        assert not world.workers
