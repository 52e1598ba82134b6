"""Submissions of which nobody knows whether they were committed: their files stay until that is known.

A store that goes away at the end of a commit, or a request that is given up in the middle of it, leaves the question
open. A job that is in the store after all has its files; those of one that is not are removed.
"""

from __future__ import annotations

import asyncio
import contextlib

from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.files import job_files
from edt_server.ledger import STORE_AWAY, Commits
from edt_server.store import Store, StoreError


class Doubts:
    """The open questions of one service.

    Args:
        commits: reads between changes.
    """

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._open: set[asyncio.Task[None]] = set()

    def about(self, paths: JobPaths, store: Store) -> None:
        """Remove these files unless the job is in the store, as soon as that can be asked."""
        task = asyncio.create_task(self._settle(paths, store), name=f"edt doubt {paths.job_id}")
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def stop(self) -> None:
        """Ask no more; files of open questions stay."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _settle(self, paths: JobPaths, store: Store) -> None:
        while True:
            with contextlib.suppress(StoreError):
                if await self._commits.read(store.job, paths.job_id) is None:
                    await asyncio.to_thread(job_files.remove, paths)
                return
            await asyncio.sleep(STORE_AWAY)
