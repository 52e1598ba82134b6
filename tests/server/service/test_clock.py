"""Time as a change of a ledger: turns that end, patience that ends; and a clock that tells it when it is due."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from edt_sdk.schemas import events
from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.control import Slot
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.core.events import SlotsChanged
from edt_server.jobs.submission import Submission
from edt_server.ledger import reports
from edt_server.ledger.ledger import Ledger
from edt_server.service.clock import MOST_START, Clock, next_tell, pass_time
from edt_server.system.steady_clock import SteadyClock
from tests.clocks import YEAR
from tests.server.core.invariants import check


class Play:
    """A ledger with one slot whose time is told by hand."""

    def __init__(self, folder, group: InstanceGroup) -> None:
        self.folder = folder
        self.ledger = Ledger.open(f"sqlite:///{folder / 'edt.db'}", Plan(instance_groups=(group,)))
        self.late = 0.0
        self.numbers: dict[str, int] = {}
        self.do(lambda change: change.apply(SlotsChanged((Slot(id=0, host="h"),))))

    def do(self, work):
        def later(change):
            change.now += self.late
            return work(change)

        value, self.outcome = self.ledger.change(later)
        check(self.ledger.core)
        return value

    def submit(self, name: str, **options) -> None:
        spec = JobSpec(name=name, main="train.py", max_workers=4, **options)
        self.do(Submission(name, "ann", spec, "/python", 1, JobPaths(self.folder, "ann", name)).enter)

    def report(self, job: str, report) -> None:
        number = self.numbers[job] = self.numbers.get(job, 0) + 1
        numbered = control.Numbered(number=number, time=time.time() + self.late, report=report)
        self.do(lambda change: reports.take(change, job, numbered))

    def trains(self, job: str) -> None:
        self.report(
            job,
            control.GenerationFormed(training=0, number=1, workers=(0,), slots=(0,), pids=(1,), update=0),
        )
        assert self.state(job) is JobState.RUNNING

    def state(self, job: str) -> JobState:
        return self.ledger.row(job).state


@pytest.fixture
def play(tmp_path):
    made: list[Play] = []

    def make(**group) -> Play:
        made.append(Play(tmp_path, InstanceGroup(name="default", **group)))
        return made[-1]

    yield make
    for each in made:
        assert Ledger(each.ledger.store, each.ledger._plan).core.digest() == each.ledger.core.digest(), "replay"
        each.ledger.close()


def test_a_job_whose_turn_is_over_waits_and_comes_back(play):
    p = play(quantum=10.0)
    p.submit("a")
    p.submit("b")
    assert (p.state("a"), p.state("b")) == (JobState.LAUNCHING, JobState.PENDING)
    p.trains("a")
    assert p.do(pass_time) == []
    assert p.outcome.jobs == (), "it is not time yet, and nothing is written"

    p.late = 11.0
    p.do(pass_time)
    assert p.outcome.allocations["a"].slots == ()
    p.report("a", control.SlotReturned(slot=0, worker=0, exit_code=0))
    assert (p.state("a"), p.state("b")) == (JobState.PENDING, JobState.LAUNCHING)
    assert p.outcome.launches == ("b",)
    texts = [event.text for event in p.ledger.store.events(job="a")]
    assert any("another job's turn begins" in text for text in texts)

    p.trains("b")
    p.late = 22.0
    p.do(pass_time)
    p.report("b", control.SlotReturned(slot=0, worker=0, exit_code=0))
    assert (p.state("a"), p.state("b")) == (JobState.LAUNCHING, JobState.PENDING)
    assert [slot.id for slot in p.outcome.allocations["a"].slots] == [0]


def test_a_turn_shorter_than_the_start_lasts_until_the_job_trains(play):
    p = play(quantum=1.0)
    p.submit("a")
    p.submit("b")
    began = p.ledger.row("a").state_since
    for p.late in (2.0, 30.0):
        p.do(pass_time)
        assert len(p.ledger.allocation("a").slots) == 1, "it has trained nothing yet"
    asked = next_tell(p.ledger, began + 30.0)
    assert asked == pytest.approx(began + 1.0 + MOST_START, abs=0.5)
    p.trains("a")
    assert next_tell(p.ledger, began + 30.0) == began + 30.0
    p.do(pass_time)
    assert p.ledger.allocation("a").slots == ()


def test_a_job_that_never_trains_does_not_keep_the_others_waiting(play):
    p = play(quantum=1.0)
    p.submit("a")
    p.submit("b")
    p.late = MOST_START + 2.0
    p.do(pass_time)
    assert p.ledger.allocation("a").slots == ()


def test_a_job_that_waited_as_long_as_it_may_hears_it_although_another_starts(play):
    p = play(quantum=1.0)
    p.submit("a")
    p.submit("b", pending_timeout=5.0)
    p.late = 6.0
    assert p.do(pass_time) == ["b"]
    assert p.state("b") is JobState.ERROR


def test_a_job_that_waited_too_long_ends_with_an_error_that_says_why(play):
    p = play(policy="fifo")
    p.submit("a")
    p.submit("b", pending_timeout=30.0)
    p.late = 29.0
    assert p.do(pass_time) == []
    p.late = 31.0
    assert p.do(pass_time) == ["b"]
    row = p.ledger.row("b")
    assert row.state is JobState.ERROR
    assert row.message.startswith("It got no slot in 30 s, its pending_timeout. It waits: the instance group default")
    assert events.JOB_GIVEN_UP in [event.kind for event in p.ledger.store.events(job="b")]
    assert p.ledger.core.jobs == ("a",)
    assert p.do(pass_time) == []


@pytest.mark.parametrize("leap", [YEAR, -YEAR])
def test_a_clock_that_leaps_by_a_year_ends_no_turn_and_no_wait(play, clocks, leap):
    p = play(quantum=10.0)
    p.submit("a")
    p.submit("b", pending_timeout=3600.0)
    p.trains("a")
    began = p.ledger.row("a").state_since
    clocks.set_by(leap)
    assert p.do(pass_time) == []
    assert p.ledger.allocation("a").slots, "its turn has just begun"
    clocks.pass_time(11.0)
    p.do(pass_time)
    assert p.ledger.allocation("a").slots == (), "its turn is over after the time that passed"
    # The supervisor's clock has leapt too.
    p.report("a", control.SlotReturned(slot=0, worker=0, exit_code=0))
    assert (p.state("a"), p.state("b")) == (JobState.PENDING, JobState.LAUNCHING)
    p.trains("b")
    assert began <= p.ledger.row("b").state_since <= began + 12.0
    times = [event.time for event in p.ledger.store.events()]
    assert times == sorted(times)
    assert times[-1] - times[0] < 12.0


@pytest.mark.parametrize("leap", [YEAR, -YEAR])
def test_a_clock_that_was_set_by_a_year_at_the_next_start_lets_no_job_starve(play, clocks, leap):
    p = play(quantum=10.0)
    p.submit("a")
    p.submit("b")
    p.trains("a")
    clocks.pass_time(5.0)
    clocks.set_by(leap)
    p.ledger = Ledger(p.ledger.store, p.ledger._plan)
    now = p.ledger.clock.now()
    assert next_tell(p.ledger, now) - now <= 10.0
    clocks.pass_time(10.0)
    p.do(pass_time)
    assert p.ledger.allocation("a").slots == ()
    times = [event.time for event in p.ledger.store.events()]
    assert times == sorted(times)


@pytest.mark.asyncio
async def test_the_clock_tells_when_it_is_due_and_is_asked_anew_after_a_change():
    told = asyncio.Event()
    wakes = [None, time.time() + 0.05]

    async def change(work):
        told.set()
        return []

    async def read(asked, *_):
        assert asked is next_tell
        return wakes.pop(0) if wakes else None

    ledger = SimpleNamespace(clock=SteadyClock())
    clock = Clock(SimpleNamespace(change=change, read=read, ledger=ledger))
    clock.start()
    while len(wakes) == 2:
        await asyncio.sleep(0)
    assert not told.is_set()
    clock.look()
    await asyncio.wait_for(told.wait(), 180)
    await clock.stop()
