"""Retention: remove ended jobs with all their files once they are too old, or together too large. Off by default.

Only ended jobs are removed, the oldest first, and no job with weights that a living job starts with. The transaction
that removes the row checks again whether the job may go, so that it cannot be resumed in between. The files follow. The
event of the removal stays, like all events, and shows the next server which files a killed server has left. Living jobs
never count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.files import job_files
from edt_server.jobs.stored_bytes import StoredBytes
from edt_server.ledger import Change, Changes
from edt_server.store import JobRow, Store
from edt_server.system.private_files import write_private
from edt_server.system.steady_clock import running_for

log = logging.getLogger(__name__)

JOB_REMOVED = "job_removed"  # data: owner, name, bytes, why
DAY = 86_400.0
# A job that has just ended is not removed for its size: its user is about to fetch the result.
GRACE = 3600.0
_FIRST, _EVERY = 60.0, 3600.0
_DRIFT = 3600.0
# Seconds for which a machine may have been off, or a server not started.
_OFF = 31 * DAY
CLOCK_FILE = "retention.clock"
_FINAL = tuple(state for state in JobState if state.final)
_LIVING = tuple(state for state in JobState if not state.final)


@dataclass(frozen=True, slots=True)
class EndedJob:
    """An ended job: when it ended (seconds since the epoch), and what its files take."""

    job: str
    ended: float
    bytes: int


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How long, and how much, is kept. 0 means no limit."""

    days: float = 0.0
    bytes: int = 0

    @property
    def any(self) -> bool:
        """Return True when something may have to go."""
        return bool(self.days or self.bytes)

    def overdue(self, kept: Iterable[EndedJob], now: float) -> list[tuple[EndedJob, str]]:
        """Return the jobs to remove with the reason, the oldest first."""
        left = sorted(kept, key=lambda each: (each.ended, each.job))
        total = sum(each.bytes for each in left)
        going: list[tuple[EndedJob, str]] = []
        for each in left:
            if self.days and each.ended < now - self.days * DAY:
                why = f"it ended more than {self.days:g} days ago"
            elif self.bytes and total > self.bytes and each.ended < now - GRACE:
                why = f"ended jobs take {total:,} bytes, of {self.bytes:,} that are kept"
            else:
                continue
            going.append((each, why))
            total -= each.bytes
        return going


class RetentionClock:
    """The time by which jobs are too old. It never ends a job's time early because a clock was set wrong.

    While the server runs, it is at most an hour further than the machine has run. At a start it is at most a month
    ahead of the last time that a server wrote into `kept`, a file: a clock that is further ahead counts once the file
    was removed. A clock that was set back removes nothing early.
    """

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        wall, self._known = time.time(), self._last()
        self._wall, self._running, self._warned = wall, running_for(), False
        if self._known is not None and wall > self._known + _OFF:
            self._wall, self._warned = self._known, True
            log.warning(
                "the clock is %.0f days ahead of the last time that jobs were looked at: no job is removed for it; if "
                "the clock is right, remove %s and start the server again",
                (wall - self._known) / DAY,
                kept,
            )

    def now(self) -> float:
        """Return the seconds since the epoch by which jobs are too old, and keep them for the next server."""
        wall, most = time.time(), self._wall + running_for() - self._running + _DRIFT
        if wall > most and not self._warned:
            self._warned = True
            log.warning("the clock has jumped ahead by %.0f s: no job is removed for its new time", wall - most)
        now = min(wall, most)
        if self._known is None or now > self._known:
            self._known = now
            with contextlib.suppress(OSError):  # a full disk, on which retention has to go on
                write_private(self._kept, msgspec.json.encode(now))
        return now

    def _last(self) -> float | None:
        try:
            return msgspec.json.decode(self._kept.read_bytes(), type=float)
        except (OSError, msgspec.DecodeError):
            return None


class Retention:
    """The background task that removes old jobs. `gone` returns whether nothing of an ended job runs any more."""

    def __init__(
        self,
        limits: RetentionLimits,
        store: Store,
        change: Changes,
        data_dir: Path,
        runtime_dir: Path,
        gone: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._limits = limits
        self._store = store
        self._change = change
        self._data_dir = data_dir
        self._runtime_dir = runtime_dir
        self._gone = gone
        self._stored = StoredBytes(data_dir)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look every hour from now on, if there is a limit."""
        if self._limits.any:
            self._task = asyncio.create_task(self._run(), name="edt retention")

    async def stop(self) -> None:
        """Stop looking. A removal under way is completed here or by the next server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        clock = await asyncio.to_thread(RetentionClock, self._data_dir / "control" / CLOCK_FILE)
        # The next server compares its clock with this one, however soon this one ends.
        await asyncio.to_thread(clock.now)
        await asyncio.sleep(_FIRST)
        while True:
            try:
                await asyncio.to_thread(self._finish)
                await self.sweep(await asyncio.to_thread(clock.now))
            except (EdtError, OSError) as trouble:
                log.warning("old jobs could not be removed: %s", trouble)
            await asyncio.sleep(_EVERY)

    async def sweep(self, now: float) -> list[str]:
        """Remove the jobs that are over a limit at `now` (seconds since the epoch), and return their ids."""
        rows = await asyncio.to_thread(lambda: self._store.jobs(states=_FINAL))
        needed = await asyncio.to_thread(_needed, self._store)
        kept = await asyncio.to_thread(lambda: [self._measure(row) for row in rows])
        by_id = {row.id: row for row in rows}
        removed: list[str] = []
        # A living job starts with the weights of a needed job, which is neither removed nor counted.
        for each, why in self._limits.overdue([each for each in kept if each.job not in needed], now):
            if await self._gone(each.job) and await self._remove(by_id[each.job], each, why):
                removed.append(each.job)
        return removed

    async def _remove(self, seen: JobRow, kept: EndedJob, why: str) -> bool:
        def forget(change: Change) -> bool:
            # Read again: since the sweep looked, the job may have been resumed, or another job may start with its
            # weights.
            row = change.tx.job(seen.id)
            if row is None or not row.state.final or row.ended != seen.ended or seen.id in _needed(self._store):
                return False
            data = {"owner": row.owner, "name": row.spec.name, "bytes": kept.bytes, "why": why}
            # The event is the list of files still to remove: a server that dies before `_clear` leaves them to
            # `_finish`.
            change.append(JOB_REMOVED, row.id, data)
            change.tx.delete_job(row.id)
            return True

        if not await self._change(forget):
            return False
        log.info("job %s of %s was removed with %d bytes: %s", seen.id, seen.owner, kept.bytes, why)
        await asyncio.to_thread(self._clear, self._paths(seen))
        return True

    def _paths(self, row: JobRow) -> JobPaths:
        return JobPaths(self._data_dir, row.owner, row.id)

    def _measure(self, row: JobRow) -> EndedJob:
        ended = row.state_since if row.ended is None else row.ended
        return EndedJob(row.id, ended, self._stored.of(row) if self._limits.bytes else 0)

    def _clear(self, paths: JobPaths) -> None:
        try:
            job_files.remove(paths)
        except OSError as wrong:
            log.warning("files of the removed job %s could not be removed: %s", paths.job_id, wrong)
        job_files.clear_traces(self._runtime_dir, paths.job_id)

    def _finish(self) -> None:
        """Remove the files of jobs that were removed before their files were."""
        after = 0
        while events := self._store.events(kinds=[JOB_REMOVED], after=after, limit=1000):
            after = events[-1].seq
            for event in events:
                if event.job is None:
                    continue
                paths = JobPaths(self._data_dir, str(event.data.get("owner", "")), event.job)
                left = paths.job_dir.exists() or paths.result_dir.exists()
                if left and self._store.job(event.job) is None:
                    self._clear(paths)


def _needed(store: Store) -> set[str]:
    """Return the jobs with weights that a living job starts with."""
    return {row.spec.warm_start for row in store.jobs(states=_LIVING) if row.spec.warm_start}
