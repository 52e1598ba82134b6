"""The scheduler's clock: tells the core that time has passed, at the instants the core asked for and at no others.

The core reads no clock. It says when something happens by itself next, the end of a turn or of a job's patience; that
may change with every change of the ledger, so it is asked again after each. A turn that is shorter than the start of a
worker would come to nothing: its end is told when the job trains, or has had two minutes more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState
from edt_server.core.events import TimePassed
from edt_server.ledger import Change, Ledger, reports

log = logging.getLogger(__name__)

MOST_START = 120.0  # seconds that the end of a turn waits for a job that does not train yet
_ROUNDING = 0.01
_AGAIN = 1.0  # seconds until what could not be written is tried again


class Clock:
    """The timer of one service.

    Args:
        change: runs something in a transaction, and what follows from it (`Service.change`).
        next_wake: when time is to be told next, in seconds since the epoch; None when nothing waits for it.
    """

    def __init__(
        self,
        change: Callable[[Callable[[Change], list[str]]], Awaitable[list[str]]],
        next_wake: Callable[[], Awaitable[float | None]],
    ) -> None:
        self._change = change
        self._next_wake = next_wake
        self._changed = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Begin to tell."""
        self._task = asyncio.create_task(self._run(), name="edt clock")

    def look(self) -> None:
        """Something has changed: ask again when to tell."""
        self._changed.set()

    async def stop(self) -> None:
        """Tell nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            wake = await self._next_wake()
            try:
                async with asyncio.timeout(None if wake is None else max(0.0, wake - time.time())):
                    await self._changed.wait()
                continue
            except TimeoutError:
                pass
            try:
                for job in await self._change(pass_time):
                    log.info("job %s waited as long as it may, and is given up", job)
            except EdtError as error:
                log.warning("time could not be told to the scheduler: %s", error)
                await asyncio.sleep(_AGAIN)


def next_tell(ledger: Ledger, now: float) -> float | None:
    """When time is to be told to the core next, never before `now`; None when nothing waits for it.

    Args:
        ledger: whose core it is.
        now: seconds since the epoch.
    """
    due = ledger.core.next_wake(0.0)
    if due is None:
        return None
    if due <= now < due + MOST_START and _starting(ledger, now) and not _out_of_patience(ledger, now):
        return due + MOST_START  # sooner when the job trains: that is a change, and this is asked again
    return max(due, now)


def _starting(ledger: Ledger, now: float) -> bool:
    """Whether a job whose turn may be over does not train yet."""
    for row in ledger.store.jobs(states=[JobState.LAUNCHING]):
        job = row.id
        if job in ledger.core.jobs and ledger.core.holding(job):
            group = ledger.core.group_of(job)
            if row.state_since + group.quantum <= now + _ROUNDING:
                return True
    return False


def _out_of_patience(ledger: Ledger, now: float) -> bool:
    """Whether a job may have waited as long as it may: that is told in time."""
    for row in ledger.store.jobs(states=[JobState.PENDING]):
        if row.started is None and row.id in ledger.core.jobs:
            own, group = row.spec.pending_timeout, ledger.core.group_of(row.id).pending_timeout
            seconds = group if own is None else own
            if seconds is not None and row.created + seconds <= now + _ROUNDING:
                return True
    return False


def pass_time(change: Change) -> list[str]:
    """Tell the core that it is later, if it waits for that; end the jobs that it gives up, and return them."""
    wake = next_tell(change.ledger, change.now)
    if wake is None or wake > change.now:
        return []
    change.apply(TimePassed())
    for job, (_, seconds) in change.given_up.items():
        reason = change.core.reason(job, change.ledger.name)
        why = f" {reason.text}" if reason else ""
        reports.end(change, job, JobState.ERROR, f"It got no slot in {seconds:g} s, its pending_timeout.{why}")
    return list(change.given_up)
