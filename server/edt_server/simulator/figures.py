"""Compute the figures of a simulation from the lives of its jobs, and lay them out in a table. Pure.

Completion time of a job: from its arrival to its end. GPU-hours: the slots it occupied × the time. Restarts: how often
it continued with another number of workers.

Finish-time fairness ρ of a job: its completion time ÷ what that would have been on a cluster of its own that is 1/n of
this cluster, n being the mean number of jobs (arrived, not ended) during its life, itself included. That cluster has
slots ÷ n slots, a fraction counted as a share of a slot's time, never more than the job can use, and no pauses.
ρ > 1: the job would have done better alone with its n-th part. (Themis, NSDI'20, in the form of its successors.)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from edt_server.simulator.engine import Life, SimulatedRun

HEAD = (
    *("policy", "mean JCT", "p50", "p99", "makespan", "GPU-hours", "restarts/job"),
    *("worst ρ", "ρ > 1", "decisions", "p50 ms", "p99 ms"),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """One line of the table. Times are in seconds.

    Attributes:
        unfinished: how many never ended. The figures are of the others.
        mean, p50, p99: of the completion times (0 when no job ended).
        makespan: from the first arrival to the last end.
        restarts: mean number per job.
        worst_rho: greatest finish-time fairness.
        unfair: share of jobs, 0 … 1, with ρ > 1.
        decisions: calls of the scheduler.
        latency_p50, latency_p99, latency_max: seconds that a call took, 0 where no clock was given.
    """

    jobs: int
    unfinished: int
    mean: float
    p50: float
    p99: float
    makespan: float
    gpu_hours: float
    restarts: float
    worst_rho: float
    unfair: float
    decisions: int
    latency_p50: float
    latency_p99: float
    latency_max: float


def figures(run: SimulatedRun) -> Figures:
    """Return the figures of a run."""
    done = [life for life in run.lives if life.end is not None]
    times = sorted(completion(life) for life in done)
    rhos = finish_time_fairness(run)
    latencies = sorted(run.latencies)
    ended = max((life.end for life in done if life.end is not None), default=0.0)
    return Figures(
        jobs=len(run.lives),
        unfinished=len(run.lives) - len(done),
        mean=_mean(times),
        p50=percentile(times, 50),
        p99=percentile(times, 99),
        makespan=ended - min((life.job.time for life in done), default=0.0),
        gpu_hours=math.fsum(map(slot_seconds, run.lives)) / 3600,
        restarts=_mean([life.restarts for life in run.lives]),
        worst_rho=max(rhos.values(), default=0.0),
        unfair=_mean([float(rho > 1) for rho in rhos.values()]),
        decisions=len(latencies),
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        latency_max=latencies[-1] if latencies else 0.0,
    )


def completion(life: Life) -> float:
    """Return the seconds from the arrival to the end of a job that ended."""
    if life.end is None:
        raise ValueError(f"job {life.job.name} never ended")
    return life.end - life.job.time


def slot_seconds(life: Life) -> float:
    """Return slots occupied × seconds, up to the last known change."""
    return math.fsum(workers * (after - since) for (since, workers), (after, _) in pairwise(life.sizes))


def finish_time_fairness(run: SimulatedRun) -> dict[str, float]:
    """Return ρ of each job that ended, by name."""
    crowd = _Crowd(run.lives)
    done = (life for life in run.lives if life.end is not None)
    return {life.job.name: completion(life) / _alone(life, run.slots / crowd.mean(life)) for life in done}


def percentile(ascending: Sequence[float], percent: float) -> float:
    """Return the value at that percentile, interpolated linearly. 0 for no values."""
    if not ascending:
        return 0.0
    place = (len(ascending) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (ascending[high] - ascending[low]) * (place - low)


def _alone(life: Life, share: float) -> float:
    """Return the seconds the job takes on so many slots of its own."""
    return life.job.work / life.job.speed.at(min(share, life.job.max_workers))


def _mean(values: Sequence[float]) -> float:
    # fsum is exact, so that the figure does not depend on the order of the jobs.
    return math.fsum(values) / len(values) if values else 0.0


class _Crowd:
    """The number of jobs over time. Its mean over a job's life takes O(log n)."""

    def __init__(self, lives: Sequence[Life]) -> None:
        changes = sorted(
            [(life.job.time, 1) for life in lives] + [(life.end, -1) for life in lives if life.end is not None]
        )
        self._times = [time for time, _ in changes]
        self._counts = list(accumulate(step for _, step in changes))
        widths = [after - before for before, after in pairwise(self._times)]
        pieces = (number * width for number, width in zip(self._counts, widths, strict=False))
        # Prefix sums, so that the mean over a life is two look-ups and not a pass over all jobs.
        self._areas = [0.0, *accumulate(pieces)]

    def _area(self, time: float) -> float:
        """Return jobs × seconds up to `time`."""
        at = bisect_right(self._times, time) - 1
        return self._areas[at] + self._counts[at] * (time - self._times[at])

    def mean(self, life: Life) -> float:
        begin, end = life.job.time, life.job.time + completion(life)
        # The job itself is always there, whatever rounding leaves of the difference.
        return max(1.0, (self._area(end) - self._area(begin)) / (end - begin)) if end > begin else 1.0


def table(runs: Mapping[str, Figures]) -> str:
    """Return one line per run for a terminal, times in seconds, and below the jobs that could not be counted."""
    rows = [HEAD, *(_row(name, each) for name, each in runs.items())]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = ["  ".join(map(_cell, row, widths, range(len(HEAD)))) for row in rows]
    for name, each in runs.items():
        if each.unfinished:
            lines.append(f"{name}: {each.unfinished} of {each.jobs} jobs never ended; the figures are of the others.")
    return "\n".join(line.rstrip() for line in lines)


def _row(name: str, each: Figures) -> tuple[str, ...]:
    told = (
        f"{each.mean:.0f}",
        f"{each.p50:.0f}",
        f"{each.p99:.0f}",
        f"{each.makespan:.0f}",
        f"{each.gpu_hours:.1f}" if each.gpu_hours >= 10 else f"{each.gpu_hours:.3g}",
        f"{each.restarts:.1f}",
        f"{each.worst_rho:.2f}",
        f"{100 * each.unfair:.1f} %",
    )
    timed = (f"{1000 * each.latency_p50:.3f}", f"{1000 * each.latency_p99:.3f}") if each.latency_max else ("-", "-")
    return (name, *told, str(each.decisions) if each.decisions else "-", *timed)


def _cell(text: str, width: int, at: int) -> str:
    return f"{text:<{width}}" if at == 0 else f"{text:>{width}}"
