"""The machine of a deployment, event by event."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control, link
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines import events
from edt_server.supervisor.state_machines.events import DRIVER
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.replicas import KILL_LIMIT, LOAD_LIMIT, Replicas


def slots(*ids: int) -> tuple[Slot, ...]:
    return tuple(Slot(id=each, host="here") for each in ids)


class World:
    """Processes as plain values, which do what they are told. Checks that a slot never has two."""

    def __init__(self, history: History | None = None) -> None:
        self.machine = Replicas(version="digits/3", interpreter="/python", history=history)
        self.slot_of: dict[int, int] = {}
        self.loading: set[int] = set()
        self.ready: set[int] = set()
        self.told: dict[int, list[link.Downward]] = {}
        self.ends: deque[tuple[int, float]] = deque()
        self.reports: list[control.Report] = []
        self.finished: events.Finish | None = None
        self.version = 0

    def apply(self, event: events.MachineEvent) -> None:
        for instruction in self.machine.apply(event):
            match instruction:
                case events.StartWorker(worker=worker, slot=slot):
                    assert slot.id not in self.slot_of.values(), "a slot has one replica"
                    self.slot_of[worker] = slot.id
                    self.loading.add(worker)
                case events.SendMessage(process=process, message=message):
                    self.told.setdefault(process, []).append(message)
                case events.End(process=process, patience=patience):
                    self.ends.append((process, patience))
                case events.Kill(process=process):
                    self.ends.append((process, 0.0))
                case events.SendReport(report=report):
                    if isinstance(report, control.SlotReturned):
                        assert report.slot not in self.slot_of.values(), "released while a replica is in it"
                    self.reports.append(report)
                case events.Finish():
                    assert not self.slot_of
                    self.finished = instruction

    def allocate(self, granted: Sequence[Slot]) -> None:
        self.version += 1
        self.apply(events.Allocated(self.version, tuple(granted)))

    def start(self, *workers: int) -> None:
        """These load and become ready; without any, all that load do."""
        for worker in workers or sorted(self.loading):
            self.loading.discard(worker)
            self.ready.add(worker)
            self.apply(events.Started(worker, 100 + worker))
            hello = link.WorkerHello(worker=worker, pid=100 + worker, host="here", store_port=0)
            self.apply(events.Received(worker, hello))
            self.apply(events.Received(worker, link.WorkerReady(worker=worker, training=0)))

    def die(self, worker: int, code: int = -9, signals: tuple[int, ...] = ()) -> None:
        self.slot_of.pop(worker)
        self.loading.discard(worker)
        self.ready.discard(worker)
        self.apply(events.Exited(worker, code, signals))

    def fail(self, worker: int, *, final: bool = False) -> None:
        failed = link.Failed(worker=worker, message="there is no such layer", traceback="", final=final)
        self.apply(events.Received(worker, failed))
        self.die(worker, 1)

    def end(self) -> None:
        """Everybody who was told to end does."""
        while self.ends:
            worker, _ = self.ends.popleft()
            if worker in self.slot_of:
                self.die(worker, 0, (15,))

    def of(self, kind: type) -> list:
        return [report for report in self.reports if isinstance(report, kind)]


def test_each_slot_gets_a_replica_and_every_change_of_those_that_answer_is_reported():
    world = World()
    world.allocate(slots(3, 5))
    assert sorted(world.slot_of.values()) == [3, 5]
    assert not world.of(control.GenerationFormed)
    world.start(0)
    world.start(1)
    assert [(each.number, each.workers, each.slots) for each in world.of(control.GenerationFormed)] == [
        (1, (0,), (3,)),
        (2, (0, 1), (3, 5)),
    ]


def test_a_replica_of_a_revoked_slot_answers_what_it_has_taken_before_the_slot_is_free():
    world = World()
    world.allocate(slots(0, 1))
    world.start()
    world.allocate(slots(0))
    assert world.told[1] == [link.Drain()]
    ((worker, patience),) = world.ends
    assert worker == 1
    assert patience > 0
    assert not world.of(control.SlotReturned)
    world.die(1, 0)
    (returned,) = world.of(control.SlotReturned)
    assert (returned.slot, returned.worker, returned.exit_code) == (1, 1, 0)
    assert world.of(control.GenerationFormed)[-1].workers == (0,)
    assert not world.of(control.WorkerLost)


def test_one_that_loads_has_nothing_to_answer():
    world = World()
    world.allocate(slots(0))
    world.allocate(())
    assert world.told == {}
    assert [patience for _, patience in world.ends] == [0.0]


def test_a_replica_that_dies_is_replaced_in_its_slot_and_others_go_on():
    world = World()
    world.allocate(slots(0, 1))
    world.start()
    world.die(0)
    (lost,) = world.of(control.WorkerLost)
    assert (lost.worker, lost.slot, lost.exit_code, lost.member) == (0, 0, -9, False)
    assert "killed by SIGKILL" in lost.why
    assert world.slot_of == {1: 1, 2: 0}
    world.start()
    assert world.of(control.GenerationFormed)[-1].workers == (1, 2)


def test_without_any_other_replica_the_deployment_recovers():
    world = World()
    world.allocate(slots(0))
    world.start()
    world.die(0)
    assert [lost.member for lost in world.of(control.WorkerLost)] == [True]


def test_replicas_that_fail_in_a_row_before_they_answer_end_the_job_with_the_reason():
    world = World()
    world.allocate(slots(0))
    for attempt in range(LOAD_LIMIT):
        assert world.finished is None
        world.fail(attempt)
    (ended,) = world.of(control.JobEnded)
    assert ended.state is JobState.FAILED
    assert "digits/3 cannot be served" in ended.message
    assert "there is no such layer" in ended.message
    assert world.finished is not None


def test_an_error_that_cannot_go_away_is_not_tried_again():
    world = World()
    world.allocate(slots(0))
    world.fail(0, final=True)
    assert world.of(control.JobEnded)[0].state is JobState.FAILED


def test_one_that_answered_breaks_the_row():
    world = World()
    world.allocate(slots(0))
    for round in range(LOAD_LIMIT * 2):
        world.start(2 * round)
        world.die(2 * round, 1)
        world.fail(2 * round + 1)
    assert world.finished is None


def test_kills_from_outside_are_no_fault_of_the_version_until_they_are_many():
    world = World()
    world.allocate(slots(0))
    for attempt in range(KILL_LIMIT):
        assert world.finished is None
        world.die(attempt)
    assert world.of(control.JobEnded)[0].state is JobState.FAILED


def test_a_stopped_deployment_answers_what_it_has_taken():
    world = World()
    world.allocate(slots(0, 1))
    world.start(0)
    world.apply(events.Stop("Stopped by ann."))
    assert world.told[0] == [link.Drain()]
    assert sorted(world.ends)[1] == (1, 0.0)
    assert world.finished is None
    world.end()
    assert world.of(control.JobEnded) == [control.JobEnded(state=JobState.KILLED, message="Stopped by ann.")]


def test_folders_that_cannot_be_made_end_the_job():
    world = World()
    world.apply(events.NotStarted(DRIVER, "The disk is full."))
    assert world.of(control.JobEnded)[0].state is JobState.ERROR


def test_the_numbers_of_an_earlier_supervisor_are_not_used_again():
    world = World(History(reports=7, workers=4, generations=9))
    world.allocate(slots(0))
    world.start()
    (formed,) = world.of(control.GenerationFormed)
    assert (formed.number, formed.workers, formed.training) == (10, (4,), control.NO_TRAINING)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["allocate", "start", "die", "fail", "end"]), st.integers(0, 15)), max_size=40)
)
def test_whatever_happens_a_slot_has_one_replica_and_is_released_once_it_has_none(steps):
    world = World()
    for what, number in steps:
        living = sorted(world.slot_of)
        if what == "allocate":
            world.allocate(slots(*(each for each in range(4) if number >> each & 1)))
        elif what == "start" and world.loading:
            world.start(sorted(world.loading)[number % len(world.loading)])
        elif what == "die" and living:
            world.die(living[number % len(living)])
        elif what == "fail" and world.loading:
            world.fail(sorted(world.loading)[number % len(world.loading)])
        elif what == "end":
            world.end()
        if world.finished is not None:
            return
    world.apply(events.Stop("Enough."))
    world.end()
    assert world.finished is not None
    assert len(world.of(control.JobEnded)) == 1
