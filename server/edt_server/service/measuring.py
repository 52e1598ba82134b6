"""Progress becomes measured speed: when it is time to look at a job's, and what is news is told to the core.

A look is a small change of the ledger that nobody waits for; one that fails is a line in the log, and the next period's
look takes its place.
"""

from __future__ import annotations

import asyncio
import logging

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobProgress
from edt_server.channel import Changes
from edt_server.service.speeds import Speeds, measure

log = logging.getLogger(__name__)


class Measuring:
    """The speeds of one service's jobs.

    Args:
        change: commits.
    """

    def __init__(self, change: Changes) -> None:
        self._change = change
        self._speeds = Speeds()
        self._looks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Wait for the looks that are under way."""
        await asyncio.gather(*self._looks, return_exceptions=True)

    def heard(self, job: str, progress: JobProgress, now: float) -> None:
        """A job in a throughput-aware group was heard of."""
        if self._speeds.due(job, now):
            task = asyncio.create_task(self._look(job, progress, now), name=f"edt speed {job}")
            self._looks.add(task)
            task.add_done_callback(self._looks.discard)

    def moved(self, job: str, now: float) -> None:
        """Its slots change."""
        self._speeds.moved(job, now)

    def forget(self, job: str) -> None:
        """The job has ended."""
        self._speeds.forget(job)

    async def _look(self, job: str, progress: JobProgress, now: float) -> None:
        try:
            told = await self._change(lambda change: measure(change, job, progress, now))
        except EdtError as error:
            log.warning("the speed of job %s could not be noted: %s", job, error)
        else:
            if told is None:
                self._speeds.too_early(job, now)
