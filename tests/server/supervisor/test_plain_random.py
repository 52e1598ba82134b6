"""The machine of plain jobs in a random world: slots come and go, processes end as they like, hosts are lost."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines.events import (
    Acknowledged,
    Allocated,
    End,
    Exited,
    Finish,
    Hung,
    MachineEvent,
    NotStarted,
    SendReport,
    Started,
    StartTask,
    Stop,
)
from edt_server.supervisor.state_machines.plain import Plain

SLOTS = tuple(Slot(id=number, host="ab"[number % 2]) for number in range(6))


class World:
    """Everything around one machine, and what must always hold."""

    def __init__(self, framework: str, size: int, unit: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.size = size
        self.machine = Plain(
            JobSpec(name="j", main="a.py", framework=framework, max_workers=size, min_workers=size, slots_per_unit=unit)
        )
        self.version = 0
        self.allocation: frozenset[int] = frozenset()
        self.held: set[int] = set()
        self.living: dict[int, tuple[int, ...]] = {}  # worker → slots of its process
        self.waiting: dict[int, tuple[int, ...]] = {}  # started, and not told yet
        self.told_to_end: set[int] = set()
        self.reports = 0
        self.acknowledged = 0
        self.ended: control.JobEnded | None = None
        self.finished = False
        self.runs = 0

    def tell(self, event: MachineEvent) -> None:
        out = self.machine.apply(event)
        assert not (self.finished and out), "it is over"
        begun: list[int] = []
        for step in out:
            match step:
                case StartTask(worker=worker, task=task):
                    mine = tuple(slot.id for slot in task.slots)
                    assert task.port == 0
                    begun += mine
                    assert not set(mine) & {slot for slots in self.living.values() for slot in slots}
                    self.waiting[worker] = mine
                case End(process=worker):
                    self.told_to_end.add(worker)
                case SendReport(number=number, report=report):
                    assert number == self.reports + 1
                    self.reports = number
                    self.heard(report)
                case Finish(over=over):
                    assert over
                    assert not self.living
                    assert not self.waiting
                    self.finished = True
        if begun:
            assert len(begun) == len(set(begun)) == self.size, "all of its slots, each once"
            assert set(begun) <= self.allocation
            assert not self.living
        assert self.finished == self.machine.over

    def heard(self, report: control.Report) -> None:
        match report:
            case control.SlotReturned(slot=slot):
                occupied = {each for slots in (*self.living.values(), *self.waiting.values()) for each in slots}
                assert slot not in occupied
                self.held.remove(slot)  # KeyError: released twice
            case control.RunStarted(number=number, workers=workers):
                assert number > self.runs
                self.runs = number
                assert set(workers) >= set(self.living)  # the first may have ended already
            case control.JobEnded():
                assert self.ended is None
                self.ended = report

    def allocate(self, slots: frozenset[int]) -> None:
        self.tell(Acknowledged(self.reports))
        self.version += 1
        self.allocation = slots
        self.held |= slots
        self.tell(Allocated(self.version, tuple(slot for slot in SLOTS if slot.id in slots)))

    def start_one(self) -> None:
        worker = self.random.choice(sorted(self.waiting))
        self.living[worker] = self.waiting.pop(worker)
        self.tell(Started(worker, 100 + worker))

    def exit_one(self, code: int, *, signals: tuple[int, ...] = (), lost: bool = False) -> None:
        worker = self.random.choice(sorted(self.living))
        if worker in self.told_to_end and not lost:
            code, signals = self.random.choice(((-15, (15,)), (-9, (15, 9)), (0, (15,))))
        if lost:
            self.tell(Hung(worker, "was lost with its host"))
        del self.living[worker]
        self.tell(Exited(worker, -9 if lost else code, () if lost else signals))

    def step(self, kind: str) -> None:
        match kind:
            case "allocate":
                self.allocate(frozenset(slot.id for slot in SLOTS if self.random.random() < 0.8))
            case "everything":
                self.allocate(frozenset(slot.id for slot in SLOTS))
            case "start" if self.waiting:
                self.start_one()
            case "not started" if self.waiting and self.random.random() < 0.1:
                worker = self.random.choice(sorted(self.waiting))
                del self.waiting[worker]
                self.tell(NotStarted(worker, "There is no memory."))
            case "exit" if self.living:
                self.exit_one(0)
            case "fail" if self.living and self.random.random() < 0.2:
                self.exit_one(self.random.choice((1, 3, -9, -11)))
            case "lost" if self.living:
                self.exit_one(-9, lost=True)
            case "stop" if self.random.random() < 0.1:
                self.tell(Stop("Stopped."))

    def to_the_end(self) -> None:
        """From now on there are slots for all, and every program ends well."""
        for _ in range(200):
            if self.finished:
                return
            if self.waiting:
                self.start_one()
            elif self.living:
                self.exit_one(0)
            else:
                self.allocate(frozenset(slot.id for slot in SLOTS))


KINDS = st.sampled_from(
    ("allocate", "everything", "start", "start", "start", "exit", "fail", "lost", "not started", "stop")
)


@settings(deadline=None)
@given(
    st.sampled_from((("PyTorch", 1, 1), ("PyTorch", 3, 3), ("distPyTorch", 3, 1), ("distPyTorch", 4, 2))),
    st.lists(KINDS, max_size=60),
    st.integers(0, 10**6),
)
def test_every_job_ends_once_with_all_its_slots_accounted_for(
    shape: tuple[str, int, int], kinds: list[str], seed: int
) -> None:
    world = World(*shape, seed)
    for kind in kinds:
        if world.finished:
            break
        world.step(kind)
    world.to_the_end()
    assert world.finished
    assert world.ended is not None
    assert world.ended.state.final
    assert world.ended.message
