"""Submissions with a commit in doubt: their files stay until the store has answered.

A store that fails at the end of a commit, or a request that is cancelled during a commit, leaves open whether the job
was committed. A job that is in the store keeps its files. The files of any other job are removed.
"""

from __future__ import annotations

import asyncio
import contextlib

from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.files import job_files
from edt_server.ledger import STORE_AWAY, LedgerWriter
from edt_server.store import StoreError


class UncommittedSubmissions:
    """The submissions of a service with a commit in doubt.

    Args:
        writer: reads between changes.
    """

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, paths: JobPaths) -> None:
        """Remove these files as soon as the store answers that it does not have the job."""
        task = asyncio.create_task(self._settle(paths), name=f"edt uncommitted {paths.job_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop asking. Files of submissions still in doubt stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _settle(self, paths: JobPaths) -> None:
        while True:
            with contextlib.suppress(StoreError):
                # Between two changes, because only the store knows whether a commit without an answer has succeeded
                # (docs/decisions/018).
                if await self._writer.read(self._writer.ledger.store.job, paths.job_id) is None:
                    await asyncio.to_thread(job_files.remove, paths)
                return
            await asyncio.sleep(STORE_AWAY)
