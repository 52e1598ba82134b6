"""How fast jobs train, and from that when they should end: a range, for the forecasts of waiting jobs.

In memory only, from the progress messages. A rate is an average since the first message of the job's present training.
It changes with the job's slots, so the remaining time may be half of the estimate or twice as much.
"""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.schemas.job import JobProgress

SOONER, LATER = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class _Rate:
    since: float
    first: int
    heard: float
    update: int
    total: int


class ForecastRates:
    """The rates of the jobs that run."""

    def __init__(self) -> None:
        self._rates: dict[str, _Rate] = {}

    def heard(self, job: str, progress: JobProgress, now: float) -> None:
        """Take the job's progress at `now`, seconds since the epoch."""
        before = self._rates.get(job)
        # Fewer updates mean that some were lost, or a new training. Either way the average starts again.
        if before is None or progress.update < before.update or progress.total_updates != before.total:
            self._rates[job] = _Rate(now, progress.update, now, progress.update, progress.total_updates)
        elif progress.update > before.update:
            self._rates[job] = _Rate(before.since, before.first, now, progress.update, before.total)

    def forget(self, job: str) -> None:
        """Drop the rate of a job that has ended or lost its slots."""
        self._rates.pop(job, None)

    def ends(self) -> dict[str, tuple[float, float]]:
        """Return job → (earliest, latest) end, seconds since the epoch, for jobs that were seen to make progress."""
        found: dict[str, tuple[float, float]] = {}
        for job, rate in list(self._rates.items()):
            done, seconds = rate.update - rate.first, rate.heard - rate.since
            if done > 0 and seconds > 0 and rate.total > rate.update:
                left = (rate.total - rate.update) * seconds / done
                found[job] = rate.heard + SOONER * left, rate.heard + LATER * left
        return found
