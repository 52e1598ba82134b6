"""The index gives the rows of the pure function, whatever was taken when, whole or a window, exact or thinned."""

from __future__ import annotations

import itertools
import random

import pytest

from edt_sdk.schemas.wire.control import Slot
from edt_server.core.events import JobArrived, JobGone, SlotsChanged
from edt_server.history.timeline import TimelineIndex
from tests.server.history.timeline_by_definition import allocation, during
from tests.server.timeline_histories import Recorder, call, wander


def history(seed: int, steps: int) -> Recorder:
    rng = random.Random(seed)
    recorder = Recorder()
    recorder.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(5))))
    for number in range(steps):
        wander(recorder, rng, number)
        if rng.random() < 0.1:
            recorder.note()
    return recorder


def indexed(events) -> TimelineIndex:
    index = TimelineIndex(call)
    index.take(events)
    return index


def whole(index: TimelineIndex):
    return index.rows(index.window())


@pytest.mark.parametrize("seed", range(8))
def test_the_rows_are_those_of_the_pure_function(seed):
    events = history(seed, 1000).events
    rows = allocation(events, call)
    assert len(rows) > 256, "many states are kept"
    index = indexed(events)
    assert whole(index) == rows
    assert len(index) == len(rows)
    for job in {event.job for event in events if event.job is not None and event.kind != "generation"}:
        assert index.rows(index.window(job=job)) == during(rows, events, job)


@pytest.mark.parametrize("seed", range(4))
def test_taken_piece_by_piece_they_are_the_same(seed):
    recorder, rng = history(seed, 300), random.Random(seed)
    index = TimelineIndex(call)
    taken = 0
    while taken < len(recorder.events):
        # A page may end anywhere; a look at the end of the list sees whole transactions.
        until = min(taken + rng.randint(1, 9), len(recorder.events))
        cut = until < len(recorder.events) and recorder.events[until].kind in ("slot_granted", "slot_revoked")
        index.take(recorder.events[taken:until], more=cut or rng.random() < 0.3)
        taken = until
    index.take([])
    assert whole(index) == allocation(recorder.events, call)
    assert index.seq == recorder.events[-1].seq


@pytest.mark.parametrize("seed", range(4))
def test_a_window_is_exact(seed):
    events = history(seed, 700).events
    rows, index, rng = allocation(events, call), indexed(events), random.Random(seed)
    for _ in range(50):
        start, end = sorted(rng.uniform(990, rows[-1]["time"] + 10) for _ in range(2))
        told = index.rows(index.window(start=start, end=end))
        inside = [row for row in rows if start < row["time"] <= end]
        before = [row for row in rows if row["time"] <= start][-1:]
        assert told == before + inside


def test_thinned_rows_tell_whatever_held_for_longer_than_a_stretch():
    events = history(3, 700).events
    rows, index = allocation(events, call), indexed(events)
    for points in (2, 3, 50, 200):
        told = index.rows(index.thin(index.window(), points))
        assert len(told) <= points
        assert told[0] == rows[0]
        assert told[-1] == rows[-1]
        assert [row for row in rows if row in told] == told
        stretch = (rows[-1]["time"] - rows[0]["time"]) / (points - 1)
        long = [row for row, after in itertools.pairwise(rows) if after["time"] - row["time"] > stretch]
        assert all(row in told for row in long)
    assert index.thin(index.window(), len(rows)) == index.window(), "nothing to leave out"


def test_rows_of_one_instant_are_thinned_to_the_first_and_the_last():
    recorder = Recorder()
    recorder.apply(SlotsChanged((Slot(id=0, host="h"),)))
    for number in range(9):
        recorder.apply(JobArrived(f"j{number}", 5000, 1, "default"))
        recorder.apply(JobGone(f"j{number}"))
    index = TimelineIndex()
    index.take(
        type(event)(**{**{f: getattr(event, f) for f in event.__struct_fields__}, "time": 5.0})
        for event in recorder.events
    )
    assert list(index.thin(index.window(), 7)) == [0, len(index) - 1]


def test_a_clock_that_went_back_does_not_hide_rows():
    recorder = Recorder()
    recorder.apply(SlotsChanged((Slot(id=0, host="h"),)))
    recorder.apply(JobArrived("a", 5000, 1, "default"))
    early = [type(e)(**{**{f: getattr(e, f) for f in e.__struct_fields__}, "time": 7.0}) for e in recorder.events[1:]]
    index = TimelineIndex()
    index.take([recorder.events[0], *early])
    assert [row["time"] for row in index.rows(index.window(start=1001.0))] == [7.0]


def test_nothing_taken_nothing_told():
    index = TimelineIndex()
    assert whole(index) == []
    assert index.rows(index.window(start=0.0, end=1e10)) == []
    assert index.rows(index.window(job="a")) == []


def test_a_list_without_its_beginning_is_noticed():
    grant = next(event for event in history(1, 9).events if event.kind == "slot_granted")
    with pytest.raises(ValueError, match="without the input"):
        TimelineIndex().take([grant])
