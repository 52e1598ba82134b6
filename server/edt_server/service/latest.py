"""Two caches for clients that watch a job and ask every second: its row, and the results computed from its events.

A row is valid until the next change of the store, whatever that changes (`LedgerWriter.version`). A result from a job's
events is valid until the store has a new event.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Protocol, TypeVar

from edt_sdk.schemas.events import Event
from edt_server.ledger import LedgerWriter
from edt_server.store import JobRow

T = TypeVar("T")


class LatestRows:
    """A cache of the rows that were asked for last. For use on one event loop.

    While the store is in trouble every row is read again, so that its error reaches the caller.
    """

    def __init__(self, writer: LedgerWriter, most: int = 256) -> None:
        self._writer = writer
        self._most = most
        self._version = -1
        self._rows: OrderedDict[str, JobRow] = OrderedDict()

    async def read(self, job: str, row: Callable[[str], JobRow]) -> JobRow:
        """Return the job's row. On a miss `row` reads it between two changes, and may raise."""
        version = self._writer.version
        if version != self._version or self._writer.trouble is not None:
            self._rows.clear()
            self._version = version
        found = self._rows.get(job)
        if found is None:
            found = await self._writer.read(row, job)
            # While this waited, another reader may have seen a newer version and cleared the cache. This row may be
            # older than that version and must not be kept for it.
            if version == self._version:
                self._rows[job] = found
                while len(self._rows) > self._most:
                    self._rows.popitem(last=False)
        else:
            self._rows.move_to_end(job)
        return found


class JobEventSource(Protocol):
    """The part of a store that is read."""

    def events(self, *, job: str, kinds: frozenset[str], limit: int | None) -> list[Event]:
        """Return the job's events of these kinds, oldest first, at most `limit` of them."""


class LatestEvents:
    """A cache of results computed from the events of the jobs read last. For use from any thread. Blocks.

    `newest` returns the number of the newest event committed.
    """

    def __init__(self, store: JobEventSource, newest: Callable[[], int], *, kept: int = 128) -> None:
        self._store = store
        self._newest = newest
        self._kept = kept
        self._answers: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._lock = Lock()

    def of(self, job: str, kinds: frozenset[str], answer: Callable[[list[Event]], T], *, most: int | None = None) -> T:
        """Return what `answer`, a pure function, makes of the job's first `most` events of these kinds. Read-only."""
        # Read before the events: when an event is committed in between, this answer counts as outdated.
        key, newest = (job, kinds, answer, most), self._newest()
        with self._lock:
            seen = self._answers.get(key)
            if seen is not None and seen[0] == newest:
                self._answers.move_to_end(key)
                known: T = seen[1]
                return known
        found = answer(self._store.events(job=job, kinds=kinds, limit=most))
        with self._lock:
            self._answers[key] = newest, found
            self._answers.move_to_end(key)
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
        return found
