"""Retention: who has to go, and that it goes wholly, with real folders."""

from __future__ import annotations

import asyncio
import logging
import os
import time

import pytest

from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.core.events import SlotsChanged
from edt_server.jobs.retention import (
    DAY,
    GRACE,
    JOB_REMOVED,
    EndedJob,
    Retention,
    RetentionClock,
    RetentionLimits,
)
from edt_server.jobs.stored_bytes import size_of
from edt_server.jobs.submission import Submission
from edt_server.ledger import reports
from edt_server.ledger.ledger import Ledger
from edt_server.store import StoreUnavailable
from tests.clocks import YEAR
from tests.server.store.trouble import no_room

NOW = 100 * DAY


def going(limits, *kept, now=NOW):
    return [each.job for each, _ in limits.overdue([EndedJob(*each) for each in kept], now)]


class TestWhoHasToGo:
    def test_nobody_where_nothing_is_limited(self):
        assert not RetentionLimits().any
        assert going(RetentionLimits(), ("a", 0.0, 10**15)) == []

    def test_what_ended_too_long_ago(self):
        kept = [("young", NOW - DAY, 1), ("older", NOW - 8 * DAY, 1), ("oldest", 0.0, 1)]
        assert going(RetentionLimits(days=7), *kept) == ["oldest", "older"]
        assert going(RetentionLimits(days=0.5), *kept) == ["oldest", "older", "young"]

    def test_the_oldest_until_the_others_fit(self):
        kept = [("c", 3 * DAY, 400), ("a", DAY, 100), ("b", 2 * DAY, 300)]
        assert going(RetentionLimits(bytes=800), *kept) == []
        assert going(RetentionLimits(bytes=799), *kept) == ["a"]
        assert going(RetentionLimits(bytes=699), *kept) == ["a", "b"]
        assert going(RetentionLimits(bytes=1), *kept) == ["a", "b", "c"]

    def test_what_goes_for_its_age_makes_room(self):
        kept = [("a", DAY, 500), ("b", 99 * DAY, 500), ("c", 99.5 * DAY, 500)]
        assert going(RetentionLimits(days=7, bytes=1000), *kept) == ["a"]

    def test_what_has_just_ended_does_not_go_for_its_size(self):
        assert going(RetentionLimits(bytes=1), ("a", NOW - GRACE / 2, 10**9)) == []
        assert going(RetentionLimits(bytes=1), ("a", NOW - 2 * GRACE, 10**9)) == ["a"]


def test_a_clock_that_jumps_makes_no_job_old(clocks, tmp_path, caplog):
    begun = time.time()
    clock = RetentionClock(tmp_path / "kept")
    clocks.pass_time(2 * DAY)
    assert clock.now() == time.time(), "two days later"
    clocks.set_by(YEAR)
    assert clock.now() < begun + 2.1 * DAY
    assert clock.now() < begun + 2.1 * DAY
    assert caplog.text.count("jumped ahead") == 1
    clocks.set_by(-2 * YEAR)
    assert clock.now() == time.time()


def test_a_clock_that_is_a_year_ahead_at_the_next_starts_makes_no_job_old(clocks, tmp_path, caplog):
    kept = tmp_path / "kept"
    assert RetentionClock(kept).now() == time.time()
    clocks.pass_time(DAY)
    clocks.set_by(YEAR)
    for day in (0, 1, 2):
        clock = RetentionClock(kept)
        assert clock.now() < time.time() - YEAR + DAY, "not even when it is started again and again"
        clocks.pass_time(DAY)
        assert clock.now() < time.time() - YEAR + DAY, day
    assert caplog.text.count(f"if the clock is right, remove {kept}") == 3
    clocks.set_by(-YEAR)
    assert RetentionClock(kept).now() == time.time()
    clocks.set_by(-YEAR)
    assert RetentionClock(kept).now() == time.time(), "a clock that was set back removes nothing early"
    clocks.set_by(YEAR)
    assert RetentionClock(kept).now() == time.time()
    clocks.set_by(YEAR)
    kept.unlink()
    assert RetentionClock(kept).now() == time.time()


def test_a_machine_that_was_off_for_weeks_goes_on(clocks, tmp_path):
    RetentionClock(tmp_path / "kept").now()
    clocks.pass_time(30 * DAY)
    assert RetentionClock(tmp_path / "kept").now() == time.time()


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[1]"])
def test_a_damaged_memory_of_the_time_is_none(clocks, tmp_path, data):
    (tmp_path / "kept").write_bytes(data)
    assert RetentionClock(tmp_path / "kept").now() == time.time()


def test_sizes_count_a_file_of_two_names_once_and_follow_no_links(tmp_path):
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "deep" / "weights").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "a" / "deep" / "weights", tmp_path / "a" / "again")
    (tmp_path / "outside").write_bytes(b"x" * 10**6)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    assert 100_000 <= size_of([tmp_path / "a", tmp_path / "missing"]) < 200_000


class Play:
    """Jobs with folders in a ledger, and the retention over them."""

    def __init__(self, folder, limits, database="edt.db"):
        self.folder = folder
        self.ledger = Ledger.open(f"sqlite:///{folder / database}")
        self.ledger.change(lambda change: change.apply(SlotsChanged((control.Slot(id=0, host="h"),))))
        self.busy: set[str] = set()
        self.retention = Retention(limits, self.ledger.store, self.change, folder, folder / "run", self.gone)

    async def change(self, work):
        return self.ledger.change(work)[0]

    async def gone(self, job):
        return job not in self.busy

    def paths(self, job):
        return JobPaths(self.folder, "ann", job)

    def submit(self, job, *, size=1000, warm_start=""):
        paths = self.paths(job)
        spec = JobSpec(name=job, main="train.py", max_workers=1, warm_start=warm_start)
        paths.train_dir.mkdir(parents=True)
        paths.job_dir.mkdir(parents=True)
        (self.folder / "run" / job).mkdir(parents=True)
        (paths.train_dir / "model_epoch_final.pth").write_bytes(b"w" * size)
        (paths.job_dir / "journal.jsonl").write_text("{}\n")
        self.ledger.change(Submission(job, "ann", spec, "/python", 1, paths).enter)

    def end(self, job, days_ago):
        def work(change):
            reports.end(change, job, JobState.FINISHED, "")
            change.tx.update_job(job, ended=NOW - days_ago * DAY)

        self.ledger.change(work)

    def sweep(self):
        return asyncio.run(self.retention.sweep(NOW))

    def left(self, job):
        paths = self.paths(job)
        return [place.exists() for place in (paths.result_dir, paths.job_dir, self.folder / "run" / job)]


@pytest.fixture
def play(tmp_path):
    made = Play(tmp_path, RetentionLimits(days=7))
    yield made
    made.ledger.close()


def test_an_old_job_goes_with_its_row_and_its_folders_and_its_events_stay(play, caplog):
    play.submit("old")
    play.end("old", days_ago=8)
    play.submit("young")
    play.end("young", days_ago=6)
    play.submit("living")
    before = play.ledger.store.events()
    with caplog.at_level(logging.INFO):
        assert play.sweep() == ["old"]
    assert play.left("old") == [False, False, False]
    assert play.left("young") == play.left("living") == [True, True, True]
    assert sorted(row.id for row in play.ledger.store.jobs()) == ["living", "young"]
    *events, removed = play.ledger.store.events()
    assert events == before
    assert (removed.kind, removed.job, removed.data["owner"], removed.data["name"]) == (
        JOB_REMOVED,
        "old",
        "ann",
        "old",
    )
    assert "job old of ann was removed with 0 bytes: it ended more than 7 days ago" in caplog.text
    digest = play.ledger.core.digest()
    assert Ledger(play.ledger.store).core.digest() == digest
    assert play.sweep() == []


def test_the_largest_sum_is_kept_by_removing_the_oldest(tmp_path):
    play = Play(tmp_path, RetentionLimits(bytes=900_000))
    for number, job in enumerate("abcd"):
        play.submit(job, size=400_000)
        play.end(job, days_ago=10 - number)
    play.submit("living", size=2_000_000)
    assert play.sweep() == ["a", "b"]
    assert [job for job in "abcd" if any(play.left(job))] == ["c", "d"]
    assert play.sweep() == []
    play.ledger.close()


def test_what_a_living_job_begins_with_stays_until_that_has_ended(play):
    play.submit("source")
    play.end("source", days_ago=50)
    play.submit("heir", warm_start="source")
    assert play.sweep() == []
    assert play.left("source") == [True, True, True]
    play.end("heir", days_ago=1)
    assert play.sweep() == ["source"]


def test_a_job_whose_processes_are_still_ending_stays(play):
    play.submit("old")
    play.end("old", days_ago=50)
    play.busy.add("old")
    assert play.sweep() == []
    play.busy.clear()
    assert play.sweep() == ["old"]


def test_a_job_that_is_resumed_meanwhile_stays(play):
    play.submit("old")
    play.end("old", days_ago=50)
    change = play.change

    async def after_somebody_resumed_it(work):
        play.ledger.change(lambda c: c.set_state("old", JobState.PENDING))
        return await change(work)

    play.retention._change = after_somebody_resumed_it
    assert play.sweep() == []
    assert play.left("old") == [True, True, True]
    assert play.ledger.row("old").state is JobState.PENDING


def test_when_it_cannot_be_written_down_nothing_is_removed(play):
    play.submit("old")
    play.end("old", days_ago=50)
    with no_room(beyond=2048), pytest.raises(StoreUnavailable):
        play.sweep()
    assert play.left("old") == [True, True, True]
    assert play.sweep() == ["old"]


def test_what_a_server_that_was_killed_in_between_left_is_removed_later(play, monkeypatch):
    play.submit("old")
    play.end("old", days_ago=50)
    monkeypatch.setattr(play.retention, "_clear", lambda paths: None)
    assert play.sweep() == ["old"]
    monkeypatch.undo()
    assert play.left("old") == [True, True, True]
    play.submit("other")
    play.retention._finish()
    assert play.left("old") == [False, False, False]
    assert play.left("other") == [True, True, True]


def test_an_id_that_is_used_again_keeps_its_files(play):
    play.submit("job")
    play.end("job", days_ago=50)
    assert play.sweep() == ["job"]
    play.submit("job")
    play.retention._finish()
    assert play.left("job") == [True, True, True]


def test_off_by_default(tmp_path):
    play = Play(tmp_path, RetentionLimits())

    async def start_and_stop():
        play.retention.start()
        assert play.retention._task is None
        await play.retention.stop()

    asyncio.run(start_and_stop())
    play.ledger.close()
