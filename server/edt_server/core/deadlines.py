"""Track moments that are still to come: the ends of turns, and how long jobs wait for their first slot.

The heap is cleaned lazily: a deadline that a job no longer has stays in it until it reaches the top, or until there are
many of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

NEVER = float("inf")

DeadlineOf = Callable[[str], float]  # a job's present deadline, or NEVER where it has none or is gone


class Deadlines:
    """The deadlines of all jobs, in seconds since the epoch. An entry is valid while it equals `deadline_of`."""

    def __init__(self, deadline_of: DeadlineOf) -> None:
        self._deadline_of = deadline_of
        self._heap: list[tuple[float, str]] = []
        self._valid = 0  # how many there were at the last cleaning

    def watch(self, job: str) -> None:
        """Add the job's present deadline."""
        deadline = self._deadline_of(job)
        if deadline < NEVER:
            # An earlier entry of this job stays in the heap. Finding it would need a search.
            heapq.heappush(self._heap, (deadline, job))
            if len(self._heap) > 2 * self._valid + 64:
                self._heap = sorted({(at, name) for at, name in self._heap if self._deadline_of(name) == at})
                self._valid = len(self._heap)

    def next(self) -> float:
        """Return the next valid deadline, or NEVER."""
        while self._heap and self._deadline_of(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def pop_expired(self, now: float) -> tuple[float, str] | None:
        """Remove and return one expired deadline with its job, or None when none has expired."""
        return heapq.heappop(self._heap) if self.next() <= now else None
