"""Changes of the ledger: made one after the other in one writer thread, committed, and acted on in that order.

A change that the store refuses changes nothing, and its caller may repeat it. From then on the writer probes the store
until it can be written to again, and then does what an interrupted commit left undone. Reads of the core run in the
same thread, between two changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from edt_server.ledger.ledger import Change, ChangeOutcome, Ledger
from edt_server.store import StoreError

log = logging.getLogger(__name__)
T = TypeVar("T")

STORE_AWAY = 1.0  # seconds between two probes of a store that cannot be written to


class Changes(Protocol):
    """How a change is made: committed first, then acted on, one after the other (`LedgerWriter.change`)."""

    def __call__(self, work: Callable[[Change], T]) -> Awaitable[T]:
        """Run `work` in a transaction of the ledger and do what follows from it."""
        ...


@contextlib.asynccontextmanager
async def open_writer(open_ledger: Callable[[], Ledger], *, close: bool) -> AsyncIterator[LedgerWriter]:
    """Open a ledger and its writer in the writer thread. Keep a snapshot at the end, which makes the next start quick.

    `close`: whether the ledger's store is closed at the end.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="edt-writer")
    try:
        ledger = await asyncio.get_running_loop().run_in_executor(thread, open_ledger)
        writer = LedgerWriter(ledger, thread)
        try:
            yield writer
        finally:
            await writer.stop_healing()
            await writer.read(ledger.keep_snapshot)
            if close:
                await writer.read(ledger.close)
    finally:
        thread.shutdown(wait=False)


class LedgerWriter:
    """The writer of a ledger. Made by `open_writer`.

    Attributes:
        ledger: for the writer thread only, but for `store` and `seq`.
        version: grows with every change, also with a refused one, because the store may have committed it all the same.
            A value read at a version is valid as long as `version` stays the same.
        trouble: why nothing can be written to the store now, None when all is well. Jobs go on all the same.
    """

    def __init__(self, ledger: Ledger, thread: ThreadPoolExecutor) -> None:
        self.ledger = ledger
        self.version = 0
        self._thread = thread
        self._order = asyncio.Lock()
        self._followers: list[Callable[[ChangeOutcome], None]] = []
        self.trouble: StoreError | None = None
        self._healing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    def follow(self, act: Callable[[ChangeOutcome], None]) -> None:
        """Call `act` with what each committed change asks for from now on, in the order of the commits."""
        self._followers.append(act)

    async def stop_healing(self) -> None:
        """Stop polling an unavailable store."""
        if self._healing is not None:
            self._healing.cancel()
            await asyncio.gather(self._healing, return_exceptions=True)

    async def read(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work` between two changes."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def change(self, work: Callable[[Change], T]) -> T:
        """Run `work` in a transaction, and act on it once it is committed. StoreError when nothing was changed."""
        try:
            # The lock spans commit and effects. The thread alone would order the commits, but two effects could then
            # overtake each other, and a supervisor would hear of an older allocation after a newer one.
            async with self._order:
                done: tuple[T, ChangeOutcome] = await self.read(self._changed, work)
                value, outcome = done
                for act in self._followers:
                    act(outcome)
            if self.ledger.snapshot_due and (self._keeping is None or self._keeping.done()):
                # A task, so that this change does not wait for the snapshot.
                self._keeping = asyncio.create_task(self.read(self.ledger.keep_snapshot))
        except StoreError as trouble:
            self._heal(trouble)
            raise
        return value

    def _changed(self, work: Callable[[Change], T]) -> tuple[T, ChangeOutcome]:
        try:
            return self.ledger.change(work)
        finally:
            # Also after an error: the store may have committed and lost only the answer.
            self.version += 1

    def _heal(self, trouble: StoreError) -> None:
        """Probe the store until it can be written to again. The first change that succeeds completes what is open."""
        if str(trouble) != str(self.trouble):
            log.error("%s", trouble)
        self.trouble = trouble
        if self._healing is None:
            self._healing = asyncio.create_task(self._until_well(), name="edt store")

    async def _until_well(self) -> None:
        while self.trouble is not None:
            await asyncio.sleep(STORE_AWAY)
            with contextlib.suppress(StoreError):  # `change` has logged it
                await self.change(lambda change: change.tx.probe())
                self.trouble = None
        self._healing = None
        log.warning("the job store can be written to again")
