"""The scheduler's timer: apply `TimePassed` to the core at the instants that the core asked for.

The core reads no clock. It returns the time of its next own event, such as the end of a turn or a job's pending
timeout. That time may change with every change of the ledger, so it is read again after each. A turn that ended before
its worker has started would be wasted. So its end is delayed until the job trains, or for two minutes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState
from edt_server.core.events import TimePassed
from edt_server.ledger import Change, Ledger, LedgerWriter, reports

log = logging.getLogger(__name__)

MOST_START = 120.0  # seconds that the end of a turn is delayed for a job that does not train yet
_ROUNDING = 0.01
_AGAIN = 1.0  # seconds until a failed write is retried


class Clock:
    """The timer of a service."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self._changed = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Start the timer."""
        self._task = asyncio.create_task(self._run(), name="edt clock")

    def look(self) -> None:
        """Read the next instant again: the ledger has changed."""
        self._changed.set()

    async def stop(self) -> None:
        """Stop the timer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            # Before the read: a change during the read sets the event again, and the loop reads once more.
            self._changed.clear()
            wake = await self._writer.read(next_tell, self._writer.ledger, self._writer.ledger.clock.now())
            try:
                async with asyncio.timeout(None if wake is None else max(0.0, wake - self._writer.ledger.clock.now())):
                    await self._changed.wait()
                continue
            except TimeoutError:
                pass
            try:
                for job in await self._writer.change(pass_time):
                    log.info("job %s waited as long as it may, and is given up", job)
            except EdtError as error:
                log.warning("time could not be told to the scheduler: %s", error)
                await asyncio.sleep(_AGAIN)


def next_tell(ledger: Ledger, now: float) -> float | None:
    """Return when the core needs the time next, in seconds since the epoch, never before `now`. None for never."""
    due = ledger.core.next_wake(0.0)
    if due is None:
        return None
    # A quantum shorter than the start of a worker would be a turn without training, forever (docs/decisions/016).
    if due <= now < due + MOST_START and _starting(ledger, now) and not _out_of_patience(ledger, now):
        return due + MOST_START  # earlier when the job trains: that is a change, after which this is read again
    return max(due, now)


def _starting(ledger: Ledger, now: float) -> bool:
    """Return whether a job with a turn that may be over does not train yet."""
    for row in ledger.store.jobs(states=[JobState.LAUNCHING]):
        job = row.id
        if job in ledger.core.jobs and ledger.core.holding(job):
            group = ledger.core.group_of(job)
            if row.state_since + group.quantum <= now + _ROUNDING:
                return True
    return False


def _out_of_patience(ledger: Ledger, now: float) -> bool:
    """Return whether a pending timeout may be over, which is never delayed."""
    for row in ledger.store.jobs(states=[JobState.PENDING]):
        if row.started is None and row.id in ledger.core.jobs:
            own, group = row.spec.pending_timeout, ledger.core.group_of(row.id).pending_timeout
            seconds = group if own is None else own
            if seconds is not None and row.created + seconds <= now + _ROUNDING:
                return True
    return False


def pass_time(change: Change) -> list[str]:
    """Apply the time to the core if it waits for it. Returns the jobs that it gave up, which are ended."""
    wake = next_tell(change.ledger, change.now)
    if wake is None or wake > change.now:
        return []
    change.apply(TimePassed())
    for job, (_, seconds) in change.given_up.items():
        reason = change.core.reason(job, change.ledger.name)
        why = f" {reason.text}" if reason else ""
        reports.end(change, job, JobState.ERROR, f"It got no slot in {seconds:g} s, its pending_timeout.{why}")
    return list(change.given_up)
