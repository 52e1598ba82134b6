"""Recorded events become what happened, and a workload that takes as long again under the same plan."""

import msgspec
import pytest

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import JobArrived, JobDemand, JobGone, SlotReleased, SlotsChanged, kind_of, to_data
from edt_server.core.instructions import to_event
from edt_server.simulator.figures import figures
from edt_server.simulator.recorded import read_events, recorded_run, workload_of


class Recorder:
    """A core whose inputs and decisions are written down as the ledger does."""

    def __init__(self):
        self.core, self.rows = Core(), []

    def tell(self, event, now):
        self.row(kind_of(event), getattr(event, "job", None), to_data(event), now)
        for instruction in self.core.apply(event, now):
            self.row(to_event(instruction)[0], instruction.job, to_event(instruction)[1], now)

    def row(self, kind, job, data, now):
        seq = len(self.rows) + 1
        self.rows.append(Event(seq=seq, time=1000 + now, job=job, kind=kind, data=data, cause=None, text=""))

    def release(self, now):
        for job in self.core.jobs:
            for slot in self.core.leaving(job):
                self.tell(SlotReleased(job, slot), now)


@pytest.fixture
def rows():
    """a has 8 slots, from 10 s on 4, b the others; a ends at 40 s, b at 60 s; c arrives and has not ended."""
    past = Recorder()
    past.tell(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(8))), 0)
    for job, now in (("a", 0), ("b", 10)):
        past.tell(JobArrived(job, 5000, 8, "default", owner="eva"), now)
        past.tell(JobDemand(job, 8), now)
        past.release(now)
    past.tell(JobGone("a"), 40)
    past.tell(JobGone("b"), 60)
    past.tell(JobArrived("c", 5000, 8, "default"), 70)
    return past.rows


def test_what_happened(rows):
    run = recorded_run(rows)
    assert [(life.job.name, life.sizes, life.end) for life in run.lives] == [
        ("a", ((0, 8), (10, 4), (40, 0)), 40),
        ("b", ((10, 4), (40, 8), (60, 0)), 60),
        ("c", ((70, 1),), None),
    ]
    told = figures(run)
    assert (run.slots, told.mean, told.unfinished) == (8, 45, 1)


def test_played_again_it_takes_as_long(rows, play):
    from edt_server.simulator.engine import SimulationSettings

    jobs = workload_of(rows)
    assert [job.name for job in jobs] == ["a", "b"]
    run = play(jobs, settings=SimulationSettings(resize_cost=0))
    assert [life.end for life in run.lives] == pytest.approx([40, 60])


def slots(number):
    return SlotsChanged(tuple(Slot(id=n, host="h") for n in range(number)))


PROGRAM = JobArrived("program", 5000, 4, "default", min_workers=4, slots_per_unit=4, rigid=True)


def test_a_program_keeps_its_slots_again_and_units_stay_whole(play):
    from edt_server.simulator.engine import SimulationSettings

    past = Recorder()
    past.tell(slots(8), 0)
    past.tell(PROGRAM, 0)
    past.tell(JobArrived("pairs", 5000, 4, "default", slots_per_unit=2), 0)
    past.tell(JobDemand("pairs", 4), 0)
    past.tell(JobArrived("heavy", 50_000, 8, "default"), 10)
    past.tell(JobDemand("heavy", 8), 10)
    past.release(10)
    past.tell(JobGone("program"), 30)
    past.tell(JobGone("pairs"), 40)
    past.tell(JobGone("heavy"), 60)
    happened = {life.job.name: life for life in recorded_run(past.rows).lives}
    assert happened["program"].sizes == ((0, 4), (30, 0))
    assert happened["pairs"].sizes == ((0, 4), (10, 2), (40, 0))
    jobs = workload_of(past.rows)
    assert [(job.name, job.slots_per_unit, job.min_workers, job.keeps) for job in jobs] == [
        ("program", 4, 4, True),
        ("pairs", 2, 2, False),
        ("heavy", 1, 1, False),
    ]
    again = play(jobs, settings=SimulationSettings(resize_cost=0))
    assert [life.end for life in again.lives] == pytest.approx([30, 40, 60])
    assert [life.sizes for life in again.lives] == [happened[life.job.name].sizes for life in again.lives]


def test_what_a_program_did_before_it_lost_a_slot_is_not_its_work():
    past = Recorder()
    past.tell(slots(4), 0)
    past.tell(PROGRAM, 0)
    past.tell(slots(3), 100)
    past.release(100)
    past.tell(slots(4), 200)
    past.tell(JobGone("program"), 230)
    (job,) = workload_of(past.rows)
    assert job.work == pytest.approx(30 * job.speed.at(4))


def test_a_program_that_never_had_all_it_needs_did_nothing():
    past = Recorder()
    past.tell(slots(3), 0)
    past.tell(PROGRAM, 0)
    past.tell(JobGone("program"), 10)
    assert workload_of(past.rows) == ()
    assert recorded_run(past.rows).lives[0].job.max_workers == 4


def test_a_servers_store_is_read_and_left_as_it_is(rows, tmp_path):
    from edt_server.store import Store

    path = tmp_path / "edt.sqlite"
    store = Store.open(f"sqlite:///{path}")
    with store.write() as tx:
        for row in rows:
            tx.append(row.kind, job=row.job, data=row.data, time=row.time, cause=row.cause, text=row.text)
    assert recorded_run(read_events(path)) == recorded_run(rows)
    store.close()
    path.write_bytes(b"SQLite format 3\0 and no more")
    with pytest.raises(InvalidRequest, match="no job store"):
        read_events(path)


def test_files(rows, tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    assert recorded_run(read_events(path)) == recorded_run(rows)
    path.write_text('{"seq": 1}\n')
    with pytest.raises(InvalidRequest, match="line 1"):
        read_events(path)
    path.write_text("")
    with pytest.raises(InvalidRequest, match="no job"):
        read_events(path)
