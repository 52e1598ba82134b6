"""When a training ends if it goes on as it does: from the updates seen since its number of slots last changed. Pure.

The server's own forecast knows what everybody else will do, and costs a simulation: that is for questions, not for
every look.
"""

from __future__ import annotations

from edt_sdk.schemas.job import JobState, JobView

_SHORTEST = 3.0
_LONGEST = 60.0


class Pace:
    """Updates of one job as they are seen."""

    def __init__(self) -> None:
        self._slots = -1
        self._seen: list[tuple[float, int]] = []

    def saw(self, view: JobView, now: float) -> None:
        """Take a view of `now`, seconds since the epoch."""
        if view.slots != self._slots or view.progress is None or view.state is not JobState.RUNNING:
            self._slots, self._seen = view.slots, []
        if view.progress is not None:
            recent = [(time, update) for time, update in self._seen if time >= now - _LONGEST]
            self._seen = [*recent, (now, view.progress.update)]

    def ends(self, view: JobView) -> float | None:
        """Seconds since the epoch; None before enough was seen to tell."""
        progress = view.progress
        if progress is None or not progress.total_updates or not self._seen or view.state is not JobState.RUNNING:
            return None
        (first, before), (last, update) = self._seen[0], self._seen[-1]
        if last - first < _SHORTEST or update - before < 2:
            return None
        return last + (progress.total_updates - update) * (last - first) / (update - before)
