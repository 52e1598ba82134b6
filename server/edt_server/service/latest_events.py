"""What came out of a job's events, kept until the store has a new event: who watches asks again and again. Blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Protocol, TypeVar

from edt_sdk.schemas.events import Event

T = TypeVar("T")


class EventList(Protocol):
    """The part of a store that is read."""

    def events(self, *, job: str, kinds: frozenset[str], limit: int | None) -> list[Event]:
        """The job's events of these kinds, oldest first; the first `limit` where that is given."""
        ...


class LatestEvents:
    """Answers about the jobs that were asked about last. To be used from any thread.

    Args:
        store: where the events are.
        newest: number of the newest event committed.
        kept: answers that are kept.
    """

    def __init__(self, store: EventList, newest: Callable[[], int], *, kept: int = 128) -> None:
        self._store = store
        self._newest = newest
        self._kept = kept
        self._answers: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._lock = Lock()

    def of(self, job: str, kinds: frozenset[str], answer: Callable[[list[Event]], T], *, most: int | None = None) -> T:
        """What `answer`, a pure function, makes of the job's first `most` events of these kinds; not to be changed."""
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
