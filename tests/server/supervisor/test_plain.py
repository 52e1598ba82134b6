"""The machine of jobs that are not elastic, and which slots their processes get."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.control import Slot
from edt_server.supervisor.state_machines.events import (
    DRIVER,
    Acknowledged,
    Allocated,
    End,
    Exited,
    Finish,
    Hung,
    Instruction,
    MachineEvent,
    NotStarted,
    Refuse,
    SendReport,
    Started,
    StartTask,
    Stop,
)
from edt_server.supervisor.state_machines.history import History
from edt_server.supervisor.state_machines.plain import MOST_LOSSES, Plain, places
from edt_server.supervisor.state_machines.wording import LastLines


def slots(*numbers: int, host: str = "a") -> tuple[Slot, ...]:
    return tuple(Slot(id=number, host=host) for number in numbers)


def spec(framework: str = "distPyTorch", size: int = 2, unit: int = 1, **more: object) -> JobSpec:
    return JobSpec(
        name="j", main="a.py", framework=framework, max_workers=size, min_workers=size, slots_per_unit=unit, **more
    )


def reports(out: list[Instruction]) -> list[control.Report]:
    return [each.report for each in out if isinstance(each, SendReport)]


class Story:
    """A machine, and what it answered."""

    def __init__(self, spec: JobSpec, history: History | None = None, home: str = "") -> None:
        self.machine = Plain(spec, history, home=home)
        self.version = 0

    def tell(self, *events: MachineEvent) -> list[Instruction]:
        return [step for event in events for step in self.machine.apply(event)]

    def allocate(self, *those: Slot) -> list[Instruction]:
        self.version += 1
        return self.tell(Allocated(self.version, those))

    def run(self) -> list[Instruction]:
        """A job of two ranks whose processes, 0 and 1, run."""
        return [*self.allocate(*slots(3, 7)), *self.tell(Started(0, 100), Started(1, 101))]


def test_rank_0_is_at_home_and_all_know_whether_others_are_elsewhere() -> None:
    story = Story(spec(size=3), home="b")
    started = story.allocate(*slots(0, 1), *slots(2, host="b"))
    assert [(each.task.rank, each.task.slots[0].id, each.spans) for each in started if isinstance(each, StartTask)] == [
        (0, 2, True),
        (1, 0, True),
        (2, 1, True),
    ]
    started = Story(spec(size=2), home="a").allocate(*slots(0, 1))
    assert [each.spans for each in started if isinstance(each, StartTask)] == [False, False]


def test_without_a_slot_at_home_it_goes_on_with_another_supervisor() -> None:
    story = Story(spec(size=2), home="b")
    story.allocate(*slots(0), *slots(2, host="b"))
    story.tell(Started(0, 10), Started(1, 11))
    out = story.allocate(*slots(0, 1))
    assert {each.process for each in out if isinstance(each, End)} == {0, 1}
    released = story.tell(Exited(0, -15, (15,)))
    assert reports(released) == [control.SlotReturned(slot=2, worker=0, exit_code=-15)]
    out = story.tell(Exited(1, -15, (15,)))
    assert reports(out) == [control.Relocated(host="b")]
    assert out[-1] == Finish(over=False)
    assert (story.machine.over, story.machine.holding) == (True, (0, 1, 2))


def test_nothing_starts_before_all_slots_are_there() -> None:
    story = Story(spec(size=3))
    assert story.allocate(*slots(0, 1)) == []
    started = story.allocate(*slots(0, 1, 2))
    assert [(each.task.rank, each.task.world, each.task.slots) for each in started if isinstance(each, StartTask)] == [
        (0, 3, slots(0)),
        (1, 3, slots(1)),
        (2, 3, slots(2)),
    ]
    assert reports(story.tell(Started(1, 11), Started(0, 10))) == [
        control.WorkerStarted(worker=1, slot=1, pid=11),
        control.WorkerStarted(worker=0, slot=0, pid=10),
    ]
    assert reports(story.tell(Started(2, 12)))[-1] == control.RunStarted(
        number=1, workers=(0, 1, 2), slots=(0, 1, 2), pids=(10, 11, 12)
    )


def test_finished_when_all_have_ended_well() -> None:
    story = Story(spec())
    story.run()
    assert story.tell(Exited(0, 0)) == []
    out = story.tell(Exited(1, 0))
    assert reports(out) == [
        control.JobEnded(
            state=JobState.FINISHED, message="Finished: the main script ended with exit code 0 on all ranks."
        )
    ]
    assert out[-1] == Finish(over=True)
    assert story.machine.over


def test_one_that_fails_ends_the_others_and_its_last_lines_are_the_job_s() -> None:
    story = Story(spec())
    story.run()
    assert story.tell(Exited(1, 1, words=LastLines("worker-1.stderr", "ValueError: no"))) == [End(0, 1.0)]
    (ended,) = reports(story.tell(Exited(0, -15, (15,))))
    assert isinstance(ended, control.JobEnded)
    assert ended.state is JobState.FAILED
    assert ended.message == ("Rank 1 (slot 7) ended with exit code 1.\nLast lines of worker-1.stderr:\nValueError: no")


def test_a_process_that_was_killed_is_to_blame_and_not_who_missed_it_first() -> None:
    story = Story(spec())
    story.run()
    story.tell(Exited(0, 1))
    (ended,) = reports(story.tell(Exited(1, -signal.SIGKILL)))
    assert isinstance(ended, control.JobEnded)
    assert ended.message == "Rank 1 (slot 7) was killed by SIGKILL."


def test_a_slot_that_is_taken_away_ends_all_and_they_begin_again() -> None:
    story = Story(spec())
    story.run()
    out = story.allocate(*slots(3))
    assert [type(report) for report in reports(out)] == [control.RunStopped]
    assert [each for each in out if isinstance(each, End)] == [End(0, 0.0), End(1, 0.0)]
    assert reports(story.tell(Exited(0, -15, (15,)))) == []
    assert reports(story.tell(Exited(1, 0, (15,)))) == [control.SlotReturned(slot=7, worker=1, exit_code=0)]
    again = story.allocate(*slots(3, 9))
    assert [(each.worker, each.task.run, each.task.slots) for each in again if isinstance(each, StartTask)] == [
        (2, 2, slots(3)),
        (3, 2, slots(9)),
    ]


def test_suspended_all_slots_are_released_once_and_all_processes_end() -> None:
    story = Story(spec())
    story.run()
    story.allocate()
    released = reports(story.tell(Exited(0, -9, (15, 9)), Exited(1, -15, (15,))))
    assert [report.slot for report in released if isinstance(report, control.SlotReturned)] == [3, 7]
    assert story.machine.holding == (3, 7)
    story.tell(Acknowledged(6))
    assert story.machine.holding == ()
    assert any(isinstance(each, StartTask) for each in story.allocate(*slots(3, 7)))


def test_a_slot_never_used_is_released_at_once() -> None:
    story = Story(spec(size=3))
    story.allocate(*slots(0, 1))
    assert reports(story.allocate()) == [
        control.SlotReturned(slot=0, worker=None, exit_code=None),
        control.SlotReturned(slot=1, worker=None, exit_code=None),
    ]


def test_stop_ends_the_job_and_says_why() -> None:
    story = Story(spec())
    story.run()
    assert story.tell(Stop("Stopped by ann.")) == [End(0, 0.0), End(1, 0.0)]
    assert reports(story.tell(Exited(0, -15, (15,)), Exited(1, 0, (15,)))) == [
        control.JobEnded(state=JobState.KILLED, message="Stopped by ann.")
    ]


def test_stop_before_the_processes_run() -> None:
    story = Story(spec())
    story.allocate(*slots(3, 7))
    story.tell(Stop("Enough."))
    assert End(0, 0.0) in story.tell(Started(0, 100))
    assert reports(story.tell(Exited(0, -15, (15,)), Exited(1, -15, (15,))))[-1] == control.JobEnded(
        state=JobState.KILLED, message="Enough."
    )


def test_refused_it_ends_without_a_report() -> None:
    story = Story(spec())
    story.run()
    story.tell(Refuse("Attempt 2 has taken its place."))
    out = story.tell(Exited(0, -15, (15,)), Exited(1, -15, (15,)))
    assert reports(out) == []
    assert out[-1] == Finish(over=False)


def test_one_that_cannot_be_started_is_an_error() -> None:
    story = Story(spec("PyTorch", 1))
    story.allocate(*slots(0))
    (ended,) = reports(story.tell(NotStarted(0, "Its Python is not there.")))
    assert ended == control.JobEnded(
        state=JobState.ERROR, message="The main script could not be started: Its Python is not there."
    )


def test_a_job_without_its_folders_is_an_error() -> None:
    story = Story(spec())
    (ended,) = reports(story.tell(NotStarted(DRIVER, "The job's folders could not be prepared: no space.")))
    assert isinstance(ended, control.JobEnded)
    assert ended.state is JobState.ERROR


def test_one_lost_with_its_host_begins_again_but_not_for_ever() -> None:
    story = Story(spec())
    story.run()
    worker = 1
    for losses in range(1, MOST_LOSSES + 1):
        out = story.tell(Hung(worker, "was lost with host b"), Exited(worker, -9))
        stopped = next(report for report in reports(out) if isinstance(report, control.RunStopped))
        assert (stopped.number, stopped.why) == (losses, "Rank 1 (slot 7) was lost with host b.")
        again = story.tell(Exited(worker - 1, -15, (15,)))
        started = [each.worker for each in again if isinstance(each, StartTask)]
        assert len(started) == 2
        story.tell(*(Started(each, 200 + each) for each in started))
        worker = started[1]
    story.tell(Hung(worker, "was lost with host b"), Exited(worker, -9))
    (ended,) = reports(story.tell(Exited(worker - 1, -15, (15,))))
    assert isinstance(ended, control.JobEnded)
    assert ended.state is JobState.FAILED


def test_a_later_attempt_counts_on() -> None:
    story = Story(spec("PyTorch", 2, 2, command=("ls",)), History(reports=8, workers=3, runs=2))
    (start,) = (each for each in story.allocate(*slots(0, 1)) if isinstance(each, StartTask))
    assert (start.worker, start.task.run, start.task.world, start.task.slots) == (3, 3, 1, slots(0, 1))
    assert [each.number for each in story.tell(Started(3, 9)) if isinstance(each, SendReport)] == [9, 10]
    (ended,) = reports(story.tell(Exited(3, 2)))
    assert isinstance(ended, control.JobEnded)
    assert ended.message == "The command ended with exit code 2."


def test_one_process_with_all_slots_begins_where_most_are() -> None:
    mixed = (*slots(0, host="b"), *slots(1, 2, host="c"), *slots(3, host="a"))
    assert [[slot.id for slot in those] for those in places(Framework.PYTORCH, mixed, 4)] == [[1, 2, 3, 0]]


def test_a_process_has_its_slots_on_one_host_where_that_is_possible() -> None:
    mixed = (*slots(0, 2, 4, host="b"), *slots(1, 3, 5, host="a"))
    assert [[slot.id for slot in those] for those in places(Framework.DIST, mixed, 2)] == [[1, 3], [0, 2], [5, 4]]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), unique_by=lambda at: at[1]), st.integers(1, 4))
def test_every_slot_is_somebody_s(drawn: list[tuple[str, int]], unit: int) -> None:
    drawn = drawn[: len(drawn) // unit * unit]
    those = tuple(Slot(id=number, host=host) for host, number in drawn)
    found = places(Framework.DIST, those, unit)
    assert sorted(slot.id for each in found for slot in each) == sorted(slot.id for slot in those)
    assert all(len(each) == unit for each in found)


@pytest.mark.parametrize("framework", ["PyTorch", "distPyTorch"])
def test_nobody_is_watched(framework: str) -> None:
    story = Story(spec(framework))
    assert story.machine.training
    story.allocate(*slots(3, 7))
    assert not story.machine.training
    assert (story.machine.taking_part, story.machine.processes, story.machine.committed) == (frozenset(), {}, 0)
