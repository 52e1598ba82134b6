"""Keep the timeline of a store: an index that reads, at each request, only what was committed since the last one.

The index needs no feeding. It finds missing events in the store, so a rolled-back change never shows, a change by
another server does, and the index may be created at any time. A transaction commits an input together with every
decision that follows from it. Calls block, so make them in a thread. Concurrent calls wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from edt_sdk.schemas.events import Event
from edt_server.history.timeline_index import KINDS, TimelineIndex

MOST_POINTS = 10_000
DEFAULT_POINTS = 500
_PAGE = 1000


class TimelineEvents(Protocol):
    """The part of a store that is read."""

    def events(self, *, kinds: frozenset[str] | None = None, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return events with seq > `after`, oldest first, only of `kinds` and only the first `limit`, where given."""
        ...


class TimelineFeed:
    """The timeline index of a store, with `names` for ids of jobs.

    `newest` returns the number of the newest committed event, so that nothing is read where nothing is new.
    """

    def __init__(self, store: TimelineEvents, newest: Callable[[], int], names: Callable[[str], str]) -> None:
        self._store = store
        self._newest = newest
        self._names = names
        self._index = TimelineIndex(names)
        self._seen = -1
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Stop a `catch_up` that is under way at its next page."""
        self._closed = True

    def catch_up(self) -> None:
        """Read the events committed since the last call."""
        with self._lock:
            # Read before the events: an event committed in between is found now, and looked for once more by the next
            # call.
            newest = self._newest()
            if newest == self._seen:
                return
            # Page by page: in between, the others get their turn, and no more than a page is held.
            while not self._closed:
                page = self._store.events(kinds=KINDS, after=self._index.seq, limit=_PAGE)
                full = len(page) == _PAGE
                self._index.take(page, more=full)
                if not full:
                    self._seen = newest
                    return

    def read(
        self,
        *,
        job: str | None = None,
        start: float | None = None,
        end: float | None = None,
        points: int | None = None,
    ) -> dict[str, Any]:
        """Return which job held how many slots when and why, up to now.

        Args:
            job: only while this job lived.
            start: only since then, seconds since the epoch. The first row is the one in force then.
            end: only until then.
            points: most rows, ≥ 2. By default `DEFAULT_POINTS`, or `MOST_POINTS` for a window.

        Returns:
            `rows`, `total` (how many rows the window has), `thinned` (True when some were left out), and `names` of the
            jobs in the rows.
        """
        self.catch_up()
        with self._lock:
            window = self._index.window(job=job, start=start, end=end)
            whole = start is None and end is None
            chosen = self._index.thin(window, points or (DEFAULT_POINTS if whole else MOST_POINTS))
            rows = self._index.rows(chosen)
        held = {each for row in rows for each in row["slots"]}
        return {
            "rows": rows,
            "total": len(window),
            "thinned": len(rows) < len(window),
            "names": {each: self._names(each) for each in sorted(held)},
        }
