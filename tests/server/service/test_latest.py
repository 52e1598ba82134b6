"""What was read of the store holds until the next change, and what was drawn as long as its data are the same."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta, timezone

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.pictures.losses import Losses, draw_losses
from edt_sdk.pictures.parts.look import Look
from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import NotFound
from edt_sdk.schemas.job import JobSettings, JobSpec, JobState
from edt_server.history.drawings import Drawings, present
from edt_server.ledger.ledger import Ledger
from edt_server.ledger.writer import open_writer
from edt_server.service.latest import LatestEvents, LatestRows
from edt_server.store import JobRow, StoreUnavailable


def row(name):
    return JobRow(
        id=name, owner="ann", spec=JobSpec(name=name, main="train.py", max_workers=1), state=JobState.SUBMITTED,
        state_since=1.0, created=1.0, started=None, ended=None, attempt=0, message="", interpreter="python",
        threads_per_slot=1, supervisor=None, public_key="", shards=None, last_report=0, progress=None,
        settings=JobSettings(priority=5000, max_workers=1, instance_group="default"),
    )  # fmt: skip


class Store:
    """A real ledger and its writer; counts what is read."""

    def __init__(self, writer):
        self.writer = writer
        self.ledger = writer.ledger
        self.asked = []

    def row(self, job):
        self.asked.append(job)
        return self.ledger.row(job)

    def events(self, **choice):
        self.asked.append(choice["job"])
        return self.ledger.store.events(**choice)


@pytest_asyncio.fixture
async def store(tmp_path):
    async with open_writer(lambda: Ledger.open(f"sqlite:///{tmp_path / 'edt.db'}"), close=True) as writer:
        await writer.change(lambda change: [change.tx.add_job(row(name)) for name in ("one", "two")])
        yield Store(writer)


@pytest.mark.asyncio
async def test_a_row_is_read_once_between_two_changes(store):
    rows = LatestRows(store.writer)
    for _ in range(3):
        assert (await rows.read("one", store.row)).message == ""
        assert (await rows.read("two", store.row)).id == "two"
    assert store.asked == ["one", "two"]
    await store.writer.change(lambda change: change.tx.update_job("one", message="so"))
    assert (await rows.read("one", store.row)).message == "so"
    await store.writer.change(lambda change: change.tx.delete_job("one"))
    with pytest.raises(NotFound):
        await rows.read("one", store.row)


@pytest.mark.asyncio
async def test_a_change_that_comes_while_a_row_is_read_is_not_missed(store):
    rows = LatestRows(store.writer)
    for at in range(20):
        change = store.writer.change(lambda change, at=at: change.tx.update_job("one", message=str(at)))
        await asyncio.gather(rows.read("one", store.row), change, rows.read("two", store.row))
        assert (await rows.read("one", store.row)).message == str(at)


@pytest.mark.asyncio
async def test_after_a_change_that_was_refused_it_is_read_again(store):
    rows = LatestRows(store.writer)
    await rows.read("one", store.row)

    def refused(change):
        raise StoreUnavailable("gone", hint="")

    with pytest.raises(StoreUnavailable):
        await store.writer.change(refused)
    for _ in range(2):  # in trouble it is asked each time
        await rows.read("one", store.row)
    assert store.asked == ["one"] * 3


@pytest.mark.asyncio
async def test_no_more_rows_are_kept_than_are_looked_at(store):
    rows = LatestRows(store.writer, most=1)
    for job in ("one", "two", "one", "one"):
        await rows.read(job, store.row)
    assert store.asked == ["one", "two", "one"]


@pytest.mark.asyncio
async def test_what_events_come_to_is_found_out_once_for_each_new_event(store):
    latest = LatestEvents(store, lambda: store.ledger.seq)
    remark = frozenset({kinds.REMARK})

    def told(events):
        return [event.data["text"] for event in events]

    async def say(text):
        await store.writer.change(lambda change: change.append(kinds.REMARK, "one", {"text": text}))

    await say("a")
    assert [latest.of("one", remark, told) for _ in range(3)] == [["a"]] * 3
    assert store.asked == ["one"]
    await say("b")
    assert latest.of("one", remark, told) == ["a", "b"]
    assert latest.of("one", remark, told, most=1) == ["a"]
    assert latest.of("one", remark, len) == 2


@pytest.mark.asyncio
async def test_what_is_asked_for_again_and_again_stays(store):
    latest = LatestEvents(store, lambda: store.ledger.seq, kept=2)
    for job in ("one", "two", "one", "three", "one"):
        assert latest.of(job, frozenset({kinds.REMARK}), len) == 0
    assert store.asked == ["one", "two", "three"]


def test_the_same_data_are_drawn_once():
    drawn = []

    def draw(data, look, **settings):
        drawn.append(data)
        return draw_losses(data, look, **settings)

    drawings = Drawings(kept=2)
    first, second = Losses("one", ()), Losses("two", ())
    texts = {drawings.drawn(draw, Losses("one", ()), Look()) for _ in range(3)}
    assert (len(texts), drawn) == (1, [first])
    drawings.drawn(draw, first, Look("dark"))
    drawings.drawn(draw, first, Look(), smooth=0.5)
    drawings.drawn(draw, second, Look())
    assert drawn == [first, first, first, second]
    drawings.drawn(draw, first, Look())
    assert drawn[-1] == first, "of the oldest nothing is kept"


def test_a_zone_is_more_than_its_offset():
    named = []
    drawings = Drawings()
    for zone in (UTC, timezone(timedelta(0), "WET")):
        drawings.drawn(lambda data, look: named.append(str(look.zone)) or "", Losses("one", ()), Look(zone=zone))
    drawings.drawn(draw_losses, Losses("one", ()), Look())
    assert named == ["UTC", "WET"]


@given(st.floats(0, 2e9), st.floats(0, 1e8))
def test_the_present_is_never_ahead_and_less_than_a_column_behind(start, lasted):
    now = start + lasted
    shown = present(now, start)
    assert start <= shown <= now
    assert now - shown <= max(1.0, lasted / 480)


def test_looks_within_a_step_are_of_the_same_moment():
    start = 1_000_000.0
    assert len({present(start + 7200 + second, start) for second in range(64)}) == 8
    assert len({present(start + 100 + tenth / 10, start) for tenth in range(10)}) == 1
