"""The feed over a real store: what is committed is told, what is not read twice, and answers say what they left out."""

from __future__ import annotations

import random

import pytest

from edt_sdk.schemas.wire.control import Slot
from edt_server.core.events import SlotsChanged
from edt_server.history.timeline import TimelineFeed
from edt_server.store import Store
from tests.server.history.timeline_by_definition import allocation
from tests.server.timeline_histories import Recorder, call, wander


class Written:
    """A store that gets the events of a recorder, and counts what is read from it."""

    def __init__(self, path) -> None:
        self.store = Store.open(f"sqlite:///{path}")
        self.recorder = Recorder()
        self.recorder.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(5))))
        self.newest = 0
        self.read = 0
        self.feed = TimelineFeed(self, lambda: self.newest, call)

    def events(self, **which):
        found = self.store.events(**which)
        self.read += len(found)
        return found

    def go_on(self, steps: int, seed: int = 0) -> None:
        rng = random.Random(seed)
        for number in range(steps):
            wander(self.recorder, rng, 10_000 * seed + number)
        with self.store.write() as tx:
            for event in self.recorder.events[self.newest :]:
                made = tx.append(event.kind, job=event.job, data=event.data, time=event.time, cause=event.cause)
                assert made.seq == event.seq
        self.newest = self.recorder.events[-1].seq

    def rows(self):
        return allocation(self.store.events(), call)


@pytest.fixture
def written(tmp_path):
    made = Written(tmp_path / "edt.db")
    yield made
    made.store.close()


def test_tells_what_was_committed_and_reads_it_once(written):
    for seed in range(3):
        written.go_on(100, seed)
        told = written.feed.read(points=10_000)
        assert told["rows"] == written.rows()
        assert told["names"] == {job: call(job) for row in told["rows"] for job in row["slots"]}
        assert (told["total"], told["thinned"]) == (len(told["rows"]), False)
    written.feed.read()
    assert written.read == written.newest


def test_a_history_of_many_pages(written):
    written.go_on(2600)
    assert written.newest > 2000
    told = written.feed.read()
    rows = written.rows()
    assert (len(told["rows"]) <= 500, told["total"], told["thinned"]) == (True, len(rows), True)
    middle = rows[len(rows) // 2]["time"]
    window = written.feed.read(start=middle)
    assert window["rows"] == rows[len(rows) // 2 :]
    assert not window["thinned"]
    assert len(written.feed.read(start=middle, points=5)["rows"]) <= 5


def test_a_closed_feed_stops_reading(written):
    written.go_on(10)
    written.feed.close()
    assert written.feed.read()["rows"] == []
    assert written.read == 0
