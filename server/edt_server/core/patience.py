"""Until when jobs wait for their first slot.

Deadlines are kept as they are set; those that do not count any more stay until they come up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

NEVER = float("inf")

DeadlineOf = Callable[[str], float]  # of a job, as things are now; NEVER where it has none or is gone


class Patience:
    """The deadlines of all jobs, in seconds since the epoch.

    Args:
        deadline_of: tells whether one counts still: it does while it is the job's.
    """

    def __init__(self, deadline_of: DeadlineOf) -> None:
        self._deadline_of = deadline_of
        self._heap: list[tuple[float, str]] = []

    def watch(self, job: str) -> None:
        """The job may have another deadline than before."""
        deadline = self._deadline_of(job)
        if deadline < NEVER:
            heapq.heappush(self._heap, (deadline, job))

    def next(self) -> float:
        """The next deadline that counts, NEVER where there is none."""
        while self._heap and self._deadline_of(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def over(self, now: float) -> tuple[float, str] | None:
        """A deadline that has passed, and whose; None when there is no more."""
        return heapq.heappop(self._heap) if self.next() <= now else None
