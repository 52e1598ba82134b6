"""Collect the numbers behind the live figure from a job's metrics stream, ready to be drawn. Pure.

A step here is an update, counted from 1 as people do: step n is the one after which n updates are committed. An update
that was lost and recomputed arrives twice, and the later point replaces the earlier. However long a training is, no
more than `MOST` points of each kind are kept, the largest and the smallest loss of each stretch among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Any

from edt_sdk.pictures.parts.extremes import Extremes

MOST = 4000


@dataclass(frozen=True, slots=True)
class MetricsStep:
    """One committed update. `loss` is None when it is not a number, and `time` is in seconds since the epoch."""

    step: int
    loss: float | None
    workers: int
    time: float

    @property
    def update(self) -> int:
        """The number that `Extremes` sorts it by."""
        return self.step


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps `first` < n ≤ `last`, made at `rate` steps per second by `workers` workers."""

    first: int
    last: int
    rate: float
    workers: int


class Curves:
    """All points of the metrics stream so far, at most `most` of each kind."""

    def __init__(self, most: int = MOST) -> None:
        # A stretch keeps up to three points, and the last point is there beside them.
        self._stretches = (most - 1) // 3
        self._training = 0
        self._begin()

    def _begin(self) -> None:
        self._train: Extremes[MetricsStep] = Extremes(self._stretches)
        self._test: Extremes[MetricsStep] = Extremes(self._stretches)
        self._last: MetricsStep | None = None
        self._tested: MetricsStep | None = None

    def add(self, point: Mapping[str, Any]) -> None:
        """Take a point of the metrics stream. The first point of a later training discards the earlier training."""
        if point.get("training", 0) != self._training:
            self._training = point["training"]
            self._begin()
        step = MetricsStep(point["update"] + 1, point["loss"], point.get("world", 0), point["time"])
        if point.get("kind") == "test":
            if not point.get("drawn", True):
                return
            self._tested = _told(step, self._test, self._tested)
        else:
            self._last = _told(step, self._train, self._last)

    @property
    def train(self) -> list[MetricsStep]:
        """Committed updates, oldest first, the last one always among them."""
        points = list(self._train.points())
        return [*points, self._last] if self._last is not None and points[-1].step != self._last.step else points

    @property
    def test(self) -> list[tuple[int, float]]:
        """The (step, loss) of each validation, unless its loss is not a number."""
        return [(point.step, point.loss) for point in self._test.points() if point.loss is not None]

    @property
    def steps(self) -> int:
        """The number of committed updates."""
        return self._last.step if self._last is not None else 0

    @property
    def workers(self) -> int:
        """The workers of the last update, 0 before the first."""
        return self._last.workers if self._last is not None else 0

    @property
    def loss(self) -> float | None:
        """The training loss of the last update."""
        return self._last.loss if self._last is not None else None

    @property
    def test_loss(self) -> float | None:
        """The loss of the last validation."""
        return self._tested.loss if self._tested is not None else None

    def losses(self) -> list[tuple[int, float]]:
        """Return (step, loss) of each point that has a loss."""
        return [(point.step, point.loss) for point in self.train if point.loss is not None]

    def smooth(self) -> list[tuple[int, float]]:
        """Return the losses averaged over a window of a twentieth of the points, [] for fewer than 80 points."""
        points = self.losses()
        half = len(points) // 40
        if half < 2:
            return []
        # Prefix sums: one pass, however wide the window is.
        sums = [0.0, *accumulate(loss for _, loss in points)]
        means = []
        for at, (step, _) in enumerate(points):
            low, high = max(0, at - half), min(len(points), at + half + 1)
            means.append((step, (sums[high] - sums[low]) / (high - low)))
        return means

    def average(self) -> float | None:
        """Return the steps per second from the first update to the last, pauses included, None before the second."""
        points = self.train
        if len(points) < 2 or points[-1].time <= points[0].time:
            return None
        return (points[-1].step - points[0].step) / (points[-1].time - points[0].time)

    def stretches(self, most: int = 120) -> list[Stretch]:
        """Return the steps per second in about `most` pieces. No piece spans a change of the number of workers."""
        points = self.train
        size = max(1, -(-len(points) // most), _points_in(points, 0.5))
        found: list[Stretch] = []
        # A step's time runs from the commit before it, so a piece begins with the point before its own first.
        first = 0
        for at, (point, after) in enumerate(zip_longest(points, points[1:])):
            changes = after is None or after.workers != point.workers
            if at > first and (changes or at - first >= size):
                before, seconds = points[first], point.time - points[first].time
                if seconds > 0 and point.step > before.step:
                    rate = (point.step - before.step) / seconds
                    found.append(Stretch(before.step, point.step, rate, point.workers))
                first = at
        return found


def _points_in(points: Sequence[MetricsStep], seconds: float) -> int:
    """Return how many points fall into so many seconds on average: shorter pieces would show noise."""
    whole = points[-1].time - points[0].time if points else 0.0
    return int(seconds * len(points) / whole) if whole > 0 else 1


def _told(step: MetricsStep, kept: Extremes[MetricsStep], last: MetricsStep | None) -> MetricsStep:
    """Keep a step where it is an extreme, and return it. A repeated step replaces all steps from its number on."""
    if last is not None and last.step >= step.step:
        # The update was lost with every process that knew it, and all that followed it was lost too.
        kept.forget(step.step)
    if kept.wants(step.step, step.loss):
        kept.add(step)
    return step
