"""Measure how fast jobs are at each number of workers, for instance groups that divide their slots by it.

A speed is committed updates a second since the job's present generation was formed. The batch of an update does not
depend on the number of workers, so updates compare as samples would. The core hears of a speed only when it is news, a
new size or a different speed, so that entitlements do not move while speeds stay the same.
"""

from __future__ import annotations

import asyncio
import logging

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobProgress
from edt_server.core.events import SpeedMeasured
from edt_server.ledger import Change, Changes

log = logging.getLogger(__name__)

PERIOD = 60.0  # seconds between two measurements of a job
_SECONDS, _UPDATES = 10.0, 10  # a shorter measurement does not count
_SAME = 0.1  # differences below a tenth are noise


class SpeedMeter:
    """The measurements of a service's jobs, and when the next measurement of each job is due.

    A measurement is a small change of the ledger that no request waits for. A failed measurement is a line in the log,
    and the next period measures again.
    """

    def __init__(self, change: Changes) -> None:
        self._change = change
        self._next: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def due(self, job: str, now: float) -> bool:
        """Return True once in each period of a job."""
        if now < self._next.get(job, now):
            return False
        self._next[job] = now + PERIOD
        return True

    def moved(self, job: str, now: float) -> None:
        """Bring the next measurement forward: the job's slots change, and its new size can soon be measured."""
        if job in self._next:
            self._next[job] = min(self._next[job], now + _SECONDS)

    def too_early(self, job: str, now: float) -> None:
        """Measure again as soon as there can be enough updates: there were too few."""
        self._next[job] = now + _SECONDS

    def forget(self, job: str) -> None:
        """Drop the job: it has ended."""
        self._next.pop(job, None)

    async def stop(self) -> None:
        """Wait for the measurements that are under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def heard(self, job: str, progress: JobProgress, now: float) -> None:
        """Measure a job of a throughput-aware group, where that is due."""
        if self.due(job, now):
            task = asyncio.create_task(self._measure(job, progress, now), name=f"edt speed {job}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _measure(self, job: str, progress: JobProgress, now: float) -> None:
        try:
            news = await self._change(lambda change: measure(change, job, progress, now))
        except EdtError as error:
            log.warning("the speed of job %s could not be noted: %s", job, error)
        else:
            if news is None:
                self.too_early(job, now)


def measure(change: Change, job: str, progress: JobProgress, heard: float) -> bool | None:
    """Apply the job's speed at its present size to the core, if that is news. `progress` was received at `heard`.

    Returns whether it was news, None when the job has run too short a while at this size.
    """
    core = change.core
    if job not in core.jobs or not core.group_of(job).throughput_aware:
        return False
    generations = change.ledger.store.events(job=job, kinds=[kinds.GENERATION])
    if not generations:
        return None
    formed = generations[-1]
    # From the newest generation on: before it the job had another size.
    updates, seconds = progress.update - (formed.data.get("update") or 0), heard - formed.time
    size = len(formed.data.get("workers") or ())
    if size < 1 or updates < _UPDATES or seconds < _SECONDS:
        return None
    known, speed = core.speeds(job), updates / seconds
    if size in known and abs(speed - known[size]) <= _SAME * known[size]:
        return False
    change.apply(SpeedMeasured(job, {**known, size: float(f"{speed:.4g}")}))
    return True
