"""Changes of the ledger: made one after the other in one writer thread, committed, and acted on in that order.

A change that the store refuses changes nothing and is its caller's to repeat; from then on the store is looked at until
it can be written to again, and what an interrupted commit left undone is done then. What is only read runs in the same
thread, between two changes, because it reads the core.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from edt_server.ledger.ledger import Change, Ledger, Outcome
from edt_server.store import StoreError

log = logging.getLogger(__name__)
T = TypeVar("T")

STORE_AWAY = 1.0


class Commits:
    """The writer of one ledger.

    Args:
        act: told what each committed change asks for, in the order of the commits.

    Attributes:
        version: grows with every change, also with one that was refused, which may have been committed all the same.
            What was read at one version holds as long as that is the present one.
    """

    def __init__(self, act: Callable[[Outcome], None]) -> None:
        self.version = 0
        self._act = act
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="edt-writer")
        self._order = asyncio.Lock()
        self._ledger: Ledger | None = None
        self._trouble: StoreError | None = None
        self._healing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def open(self, opened: Callable[[], Ledger]) -> Ledger:
        """Begin with the ledger that `opened` returns; it is called in the writer thread."""
        self._ledger = await self.read(opened)
        return self._ledger

    async def stop(self, *, close: bool) -> None:
        """Keep what makes the next start quick, and commit no more.

        Args:
            close: the store too.
        """
        if self._ledger is not None:
            await self.read(self._ledger.keep_snapshot)
            if close:
                await self.read(self._ledger.close)
        self._writer.shutdown(wait=False)

    async def stop_healing(self) -> None:
        """Look at a store that is away no more."""
        if self._healing is not None:
            self._healing.cancel()
            await asyncio.gather(self._healing, return_exceptions=True)

    async def read(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work` between two changes."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, *args)

    async def change(self, work: Callable[[Change], T]) -> T:
        """Run `work` in a transaction, and do what follows from it once it is committed.

        Raises:
            StoreError: the store cannot be written to; nothing was changed.
        """
        assert self._ledger is not None, "opened first"
        ledger = self._ledger
        try:
            async with self._order:
                done: tuple[T, Outcome] = await self.read(self._changed, ledger, work)
                value, outcome = done
                self._act(outcome)
            if ledger.snapshot_due and (self._keeping is None or self._keeping.done()):
                self._keeping = asyncio.create_task(self.read(ledger.keep_snapshot))  # nobody waits for it
        except StoreError as trouble:
            self._heal(trouble)
            raise
        return value

    def _changed(self, ledger: Ledger, work: Callable[[Change], T]) -> tuple[T, Outcome]:
        try:
            return ledger.change(work)
        finally:
            self.version += 1

    @property
    def trouble(self) -> StoreError | None:
        """Why nothing can be written to the store now, None when all is well. Jobs go on all the same."""
        return self._trouble

    def _heal(self, trouble: StoreError) -> None:
        """Look until the store can be written to again; what was left undone then follows."""
        if str(trouble) != str(self._trouble):
            log.error("%s", trouble)
        self._trouble = trouble
        if self._healing is None:
            self._healing = asyncio.create_task(self._until_well(), name="edt store")

    async def _until_well(self) -> None:
        while self._trouble is not None:
            await asyncio.sleep(STORE_AWAY)
            with contextlib.suppress(StoreError):  # `change` has said so
                await self.change(lambda change: change.tx.probe())
                self._trouble = None
        self._healing = None
        log.warning("the job store can be written to again")
