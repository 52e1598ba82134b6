"""The membership machine in a small random world: a server that is always a bit behind, workers that take their time.

Checked after every instruction: reports are numbered without gaps, at most one change of membership is under way, every
generation but the first has survivors and no more members than shards, no worker is started in a slot that the server
could have given to somebody else, every slot is released exactly as often as it was granted.
"""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas import control, link
from edt_sdk.schemas.control import Slot
from edt_sdk.schemas.job import JobState
from edt_server.supervisor.events import (
    DRIVER,
    Acknowledged,
    Allocated,
    End,
    Exited,
    Finish,
    LinkLost,
    Said,
    Send,
    StartDriver,
    Started,
    StartWorker,
    Stop,
    Tell,
)
from edt_server.supervisor.membership import Membership

SHARDS = 3
SLOTS = range(4)


class Process:
    def __init__(self, worker, slot):
        self.worker, self.slot = worker, slot
        self.inbox = deque()
        self.said_hello = False
        self.member_of = 0
        self.told_to_end = False


class World:
    def __init__(self):
        self.machine = Membership(interpreter="/usr/bin/python")
        self.events = deque()
        self.reports = 0
        self.to_server = deque()
        self.to_supervisor = deque()
        self.held, self.leaving, self.version, self.demand = set(), set(), 0, True
        self.workers = {}
        self.driver = "none"
        self.trainings = 0
        self.in_training = False
        self.trained = False
        self.generation = None
        self.to_join, self.to_leave = set(), set()
        self.ended = None
        self.finished = False

    # --- the machine's surroundings

    def feed(self, event):
        self.events.append(event)
        while self.events:
            for instruction in self.machine.apply(self.events.popleft()):
                self.follow(instruction)

    def follow(self, instruction):
        match instruction:
            case StartDriver():
                assert self.driver == "none"
                self.driver = "started"
                self.events.append(Started(DRIVER, 1))
            case StartWorker(worker=worker, slot=slot):
                assert slot.id in self.held | self.leaving, "started in a slot that is not the job's"
                assert all(process.slot != slot.id for process in self.workers.values()), "two workers in a slot"
                self.workers[worker] = Process(worker, slot.id)
                self.events.append(Started(worker, 100 + worker))
            case Tell(process=process, message=message) if process == DRIVER:
                if isinstance(message, link.TrainingDone):
                    assert not self.workers
                    self.in_training = False
                    self.trainings += 1
            case Tell(process=process, message=message):
                if isinstance(message, link.Generation):
                    self.check_generation(message)
                self.workers[process].inbox.append(message)
            case Send(number=number, report=report):
                self.reports += 1
                assert number == self.reports
                assert self.ended is None, "a report after the last one"
                if isinstance(report, control.JobEnded):
                    assert not self.workers
                    self.ended = report
                if isinstance(report, control.SlotReleased):
                    assert all(process.slot != report.slot for process in self.workers.values())
                self.to_server.append((number, report))
            case End(process=process):
                if process in self.workers:
                    self.workers[process].told_to_end = True
                elif process == DRIVER:
                    self.driver = "ending"
            case Finish():
                self.finished = True

    def check_generation(self, message):
        members = tuple(member.worker for member in message.members)
        if message == self.generation:
            return
        assert not self.to_join, f"changed before all had joined: {self.to_join}"
        assert not self.to_leave & set(self.workers), f"changed before all had left: {self.to_leave}"
        before = () if self.generation is None else tuple(m.worker for m in self.generation.members)
        if self.generation is None or self.generation.training != message.training:
            assert message.number == 1
            before = ()
        else:
            assert message.number == self.generation.number + 1
            assert set(before) & set(members), "no survivor"
        staying = tuple(worker for worker in before if worker in members)
        assert members[: len(staying)] == staying
        assert list(members[len(staying) :]) == sorted(members[len(staying) :])
        assert [member.fresh for member in message.members] == [
            member.worker not in before for member in message.members
        ]
        assert 1 <= len(members) <= SHARDS
        self.generation, self.to_join, self.to_leave = message, set(members), set(before) - set(members)

    # --- the server

    def level(self):
        self.version += 1
        slots = tuple(Slot(id=slot, host="h") for slot in sorted(self.held))
        self.to_supervisor.append(Allocated(self.version, slots))

    def grant(self, slot):
        self.held.add(slot)
        self.level()

    def revoke(self, slot):
        self.held.remove(slot)
        self.leaving.add(slot)
        self.level()

    def take_report(self):
        number, report = self.to_server.popleft()
        match report:
            case control.SlotReleased(slot=slot):
                assert slot in self.held | self.leaving, "released twice"
                kept = slot in self.held
                self.held.discard(slot)
                self.leaving.discard(slot)
            case control.TrainingStarted():
                self.demand = True
            case control.TrainingEnded():
                self.demand = False
                self.leaving |= self.held
                self.held = set()
            case control.JobEnded():
                self.held, self.leaving, self.demand = set(), set(), False
        self.to_supervisor.append(Acknowledged(number))
        if isinstance(report, control.TrainingEnded) or (isinstance(report, control.SlotReleased) and kept):
            self.level()

    # --- what may happen next

    def actions(self, *, calm=False):
        found = []
        if self.to_server:
            found.append(self.take_report)
        if self.to_supervisor:
            found.append(lambda: self.feed(self.to_supervisor.popleft()))
        for process in list(self.workers.values()):
            found.extend(self.worker_actions(process))
        if self.driver == "started":
            found.append(self.driver_hello)
        if self.driver == "talking" and not self.in_training and not calm and self.trainings < 3:
            found.append(self.train)
        if self.driver == "ending":
            found.append(self.driver_exit)
        if not calm and self.demand and self.ended is None:
            free = [slot for slot in SLOTS if slot not in self.held | self.leaving]
            found += [lambda slot=slot: self.grant(slot) for slot in free]
            # The scheduler's floor: what trains keeps one slot.
            if len(self.held) > 1 or not self.in_training:
                found += [lambda slot=slot: self.revoke(slot) for slot in self.held]
        if not calm and self.group_is_complete() and not self.trained:
            found.append(self.finish_training)
        return found

    def group_is_complete(self):
        return self.in_training and self.generation is not None and self.generation.training == self.trainings and (
            not self.to_join
        )  # fmt: skip

    def worker_actions(self, process):
        number = process.worker
        if process.told_to_end and not process.member_of:
            yield lambda: self.exit(process, -15, (15,))
            return
        if not process.said_hello:
            yield lambda: self.hello(process)
        elif process.inbox:
            yield lambda: self.hear(process)
        elif self.trained and process.member_of:
            yield lambda: self.exit(process, 0)
        assert number in self.workers

    def hello(self, process):
        process.said_hello = True
        self.feed(Said(process.worker, link.WorkerHello(worker=process.worker, pid=9, host="h", store_port=1)))

    def hear(self, process):
        message = process.inbox.popleft()
        worker = process.worker
        if isinstance(message, link.Begin):
            self.feed(Said(worker, link.WorkerReady(worker=worker, training=message.training)))
        elif worker in [member.worker for member in message.members]:
            process.member_of = message.number
            self.to_join.discard(worker)
            self.feed(Said(worker, link.Joined(worker=worker, generation=message.number, update=1)))
        else:
            self.feed(Said(worker, link.Left(worker=worker, generation=message.number, update=1)))
            self.exit(process, 0)

    def exit(self, process, code, signals=()):
        del self.workers[process.worker]
        self.feed(LinkLost(process.worker, "closed"))
        self.feed(Exited(process.worker, code, signals))

    def driver_hello(self):
        self.driver = "talking"
        self.feed(Said(DRIVER, link.DriverHello(pid=1)))

    def driver_exit(self):
        self.driver = "gone"
        self.feed(Exited(DRIVER, -15, (15,)))

    def train(self):
        self.in_training, self.trained = True, False
        self.feed(
            Said(DRIVER, link.TrainRequest(training=self.trainings, payload="p", shards=SHARDS, epochs=1)),
        )

    def finish_training(self):
        self.trained = True
        first = self.generation.members[0].worker
        self.feed(Said(first, link.Trained(worker=first, training=self.trainings, updates=7)))

    def drain(self):
        for _ in range(2000):
            actions = self.actions(calm=True)
            if not actions:
                return
            actions[0]()
        raise AssertionError("never comes to rest")


def drive(world, data, steps):
    for _ in range(steps):
        actions = world.actions()
        if not actions:
            return
        data.draw(st.sampled_from(actions))()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_slots_and_generations_stay_in_order_whatever_happens_when(data):
    world = World()
    drive(world, data, data.draw(st.integers(1, 150)))
    world.drain()
    assert world.ended is None, world.ended
    assert not world.leaving or world.leaving <= {process.slot for process in world.workers.values()}
    if world.in_training and not world.trained:
        if world.held:
            assert {process.slot for process in world.workers.values()} == world.held, (
                "a slot is idle or not given back"
            )
            assert len(world.generation.members) == min(SHARDS, len(world.held))
        assert not world.to_join
    if not world.in_training and world.trainings:
        assert not world.workers


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_stop_at_any_moment_ends_everything_with_one_report(data):
    world = World()
    drive(world, data, data.draw(st.integers(0, 80)))
    world.feed(Stop("enough"))
    for process in world.workers.values():
        process.member_of = 0
    world.drain()
    assert world.finished
    assert not world.workers
    assert world.ended == control.JobEnded(state=JobState.KILLED, message="enough")


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_worker_killed_at_any_moment_fails_the_job_and_is_named(data):
    world = World()
    drive(world, data, data.draw(st.integers(5, 80)))
    candidates = [process for process in world.workers.values() if not process.told_to_end and not (world.trained)]
    if not candidates:
        return
    victim = data.draw(st.sampled_from(candidates))
    for process in list(world.workers.values()):
        if process.member_of and process is not victim and data.draw(st.booleans()):
            message = link.Failed(worker=process.worker, message="Connection reset by peer", traceback="")
            world.feed(Said(process.worker, message))
            process.member_of = 0
    victim_number = victim.worker
    world.exit(victim, -9)
    for process in world.workers.values():
        process.member_of = 0
    world.drain()
    assert world.finished
    assert world.ended.state in (JobState.FAILED, JobState.ERROR)
    assert world.ended.message.startswith(f"Worker {victim_number} (")
    assert "was killed by SIGKILL" in world.ended.message
