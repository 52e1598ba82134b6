"""How fast jobs get on, and from that when they should end: a range, told to those that wait for their slots.

In memory only, from the progress that is heard anyway. A pace is an average since the job was first heard of at its
present training; it will get faster and slower with its slots, so that what is left may take half of that or twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.schemas.job import JobProgress

SOONER, LATER = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class _Pace:
    since: float
    first: int
    heard: float
    update: int
    total: int


class Paces:
    """The paces of the jobs that run."""

    def __init__(self) -> None:
        self._paces: dict[str, _Pace] = {}

    def heard(self, job: str, progress: JobProgress, now: float) -> None:
        """The job was so far at `now`, seconds since the epoch."""
        before = self._paces.get(job)
        if before is None or progress.update < before.update or progress.total_updates != before.total:
            self._paces[job] = _Pace(now, progress.update, now, progress.update, progress.total_updates)
        elif progress.update > before.update:
            self._paces[job] = _Pace(before.since, before.first, now, progress.update, before.total)

    def forget(self, job: str) -> None:
        """The job has ended, or lost its slots."""
        self._paces.pop(job, None)

    def ends(self) -> dict[str, tuple[float, float]]:
        """Job → when it should end, not before and not after; without those that have not been seen to get on."""
        found: dict[str, tuple[float, float]] = {}
        for job, pace in list(self._paces.items()):
            done, seconds = pace.update - pace.first, pace.heard - pace.since
            if done > 0 and seconds > 0 and pace.total > pace.update:
                left = (pace.total - pace.update) * seconds / done
                found[job] = pace.heard + SOONER * left, pace.heard + LATER * left
        return found
