"""Writes `workload.csv` and `apps.csv`: 160 jobs in eight hours, made by us from a fixed seed.

    python benchmarks/workloads/make_workload.py [--jobs 160] [--hours 8] [--seed 1] [--into FOLDER]

The shape is that of published GPU clusters, the numbers are ours: arrivals by chance, twice as dense in the fifth hour;
most jobs small and short, a few that take days of GPU time and most of the cluster's work (in Microsoft's Philly trace
the durations' p50, p90 and p99 are 19 minutes, 3.1 hours and 71 hours); each size class trains its own application.
Speeds follow a law of communication, so that some applications scale well and some hardly. No line of anybody's data is
in here.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MOST_WORKERS = 32


@dataclass(frozen=True)
class Kind:
    """An application. Speed with n workers: `one` · n ÷ (1 + serial·(n − 1)), in samples a second.

    Attributes:
        name: in the files.
        share: of the jobs.
        batch_size: of an update.
        one: samples a second of one worker.
        serial: the part that more workers do not speed up.
        hours: GPU time of its whole training on one worker.
        replicas: what its users ask for where a size must be fixed, with how often.
    """

    name: str
    share: float
    batch_size: int
    one: float
    serial: float
    hours: float
    replicas: dict[int, float]


KINDS = (
    Kind("recommender", 0.40, 4096, 52000.0, 0.15, 0.25, {1: 0.7, 2: 0.3}),
    Kind("small-image-classifier", 0.34, 256, 2100.0, 0.03, 1.2, {1: 0.3, 2: 0.4, 4: 0.3}),
    Kind("speech-recognizer", 0.16, 64, 38.0, 0.05, 5.0, {2: 0.3, 4: 0.5, 8: 0.2}),
    Kind("language-model", 0.06, 48, 21.0, 0.04, 14.0, {4: 0.4, 8: 0.6}),
    Kind("large-image-classifier", 0.04, 512, 640.0, 0.015, 80.0, {8: 0.5, 16: 0.5}),
)


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description="Make the workload of docs/simulate.md.")
    parser.add_argument("--jobs", type=int, default=160)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--into", type=Path, default=HERE)
    chosen = parser.parse_args()
    chosen.into.mkdir(parents=True, exist_ok=True)
    _write(chosen.into / "apps.csv", applications())
    _write(chosen.into / "workload.csv", jobs(chosen.jobs, chosen.hours, random.Random(chosen.seed)))


def applications() -> list[dict[str, object]]:
    """The lines of apps.csv."""
    return [
        {
            "application": kind.name,
            "workers": workers,
            "batch_size": kind.batch_size,
            "samples_per_second": round(speed(kind, workers), 1),
            "samples_total": round(kind.hours * 3600 * kind.one),
        }
        for kind in KINDS
        for workers in (1, 2, 4, 8, 16, MOST_WORKERS)
        if workers <= kind.batch_size
    ]


def speed(kind: Kind, workers: int) -> float:
    """Samples a second."""
    return kind.one * workers / (1 + kind.serial * (workers - 1))


def jobs(number: int, hours: float, chance: random.Random) -> list[dict[str, object]]:
    """The lines of workload.csv, by arrival. A job's own length varies by an epoch count: its duration tells it."""
    times = sorted(_arrival(hours, chance) for _ in range(number))
    lines: list[dict[str, object]] = []
    for at, time in enumerate(times):
        kind = chance.choices(KINDS, [kind.share for kind in KINDS])[0]
        replicas = chance.choices(list(kind.replicas), list(kind.replicas.values()))[0]
        # Users stop early, or train far longer than others do: lengths spread as a log-normal.
        factor = min(6.0, max(0.1, math.exp(chance.gauss(-0.3, 0.8))))
        lines.append(
            {
                "name": f"{kind.name}-{at}",
                "time": round(time),
                "application": kind.name,
                "num_replicas": replicas,
                "batch_size": kind.batch_size,
                "duration": round(factor * kind.hours * 3600 * kind.one / speed(kind, replicas)),
            }
        )
    return lines


def _arrival(hours: float, chance: random.Random) -> float:
    """Seconds after the beginning; the fifth of eight hours gets twice its part."""
    while True:
        time = chance.random() * hours * 3600
        busy = 4 / 8 <= time / (hours * 3600) < 5 / 8
        if busy or chance.random() < 0.5:
            return time


def _write(path: Path, lines: list[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
