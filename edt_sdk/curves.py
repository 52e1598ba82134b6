"""The numbers behind the live figure: what a job's metrics stream has told so far, ready to be drawn. Pure.

A step here is an update, counted from 1 as people do: step n is the one after which n updates are committed. An update
that was lost and computed again is told twice; the later telling counts. However long a training is, no more than
`MOST` points are kept, the largest and the smallest loss of each stretch among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

MOST = 4000


@dataclass(frozen=True, slots=True)
class Step:
    """One committed update.

    Attributes:
        step: its number, from 1.
        loss: mean over its samples, None when that is not a number.
        workers: how many computed it.
        time: of its commit, seconds since the epoch.
    """

    step: int
    loss: float | None
    workers: int
    time: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps `first` < n ≤ `last`, made at `rate` steps per second by `workers` workers."""

    first: int
    last: int
    rate: float
    workers: int


class Curves:
    """Everything told so far.

    Attributes:
        train: committed updates, oldest first.
        test: (step, loss) of each validation.
    """

    def __init__(self, most: int = MOST) -> None:
        self.train: list[Step] = []
        self.test: list[tuple[int, float]] = []
        self._most = most
        self._training = 0

    def add(self, point: Mapping[str, Any]) -> None:
        """Take one point of the metrics stream; a point of a later training replaces those of the one before."""
        if point.get("training", 0) != self._training:
            self._training, self.train, self.test = point["training"], [], []
        step = point["update"] + 1
        if point.get("kind") == "test":
            while self.test and self.test[-1][0] >= step:
                self.test.pop()
            if point["loss"] is not None:
                self.test.append((step, point["loss"]))
            return
        while self.train and self.train[-1].step >= step:
            self.train.pop()
        self.train.append(Step(step, point["loss"], point["world"], point["time"]))
        if len(self.train) > self._most:
            self.train = _halved(self.train)

    @property
    def steps(self) -> int:
        """Committed updates."""
        return self.train[-1].step if self.train else 0

    @property
    def workers(self) -> int:
        """Workers of the last update; 0 before the first."""
        return self.train[-1].workers if self.train else 0

    @property
    def loss(self) -> float | None:
        """Training loss of the last update."""
        return self.train[-1].loss if self.train else None

    @property
    def test_loss(self) -> float | None:
        """Loss of the last validation."""
        return self.test[-1][1] if self.test else None

    def losses(self) -> list[tuple[int, float]]:
        """(step, loss) where the loss is a number."""
        return [(point.step, point.loss) for point in self.train if point.loss is not None]

    def smooth(self) -> list[tuple[int, float]]:
        """The same as a mean over the twentieth of the points around each; [] for fewer than 80 points."""
        points = self.losses()
        half = len(points) // 40
        if half < 2:
            return []
        sums = [0.0, *accumulate(loss for _, loss in points)]
        means = []
        for at, (step, _) in enumerate(points):
            low, high = max(0, at - half), min(len(points), at + half + 1)
            means.append((step, (sums[high] - sums[low]) / (high - low)))
        return means

    def average(self) -> float | None:
        """Steps per second from the first update to the last, pauses included; None before the second."""
        if len(self.train) < 2 or self.train[-1].time <= self.train[0].time:
            return None
        return (self.train[-1].step - self.train[0].step) / (self.train[-1].time - self.train[0].time)

    def stretches(self, most: int = 120) -> list[Stretch]:
        """Steps per second in about `most` pieces, none of which spans a change of the number of workers."""
        size = max(1, -(-len(self.train) // most), _points_in(self.train, 0.5))
        found: list[Stretch] = []
        # A step's time runs from the commit before it, so a piece begins with the point before its own first.
        first = 0
        for at, (point, after) in enumerate(pairwise([*self.train, None])):
            changes = after is None or (point is not None and after.workers != point.workers)
            if at > first and (changes or at - first >= size):
                found.append(_stretch(self.train[first], self.train[at]))
                first = at
        return [stretch for stretch in found if stretch.rate > 0]


def _stretch(before: Step, last: Step) -> Stretch:
    seconds = last.time - before.time
    rate = (last.step - before.step) / seconds if seconds > 0 else 0.0
    return Stretch(before.step, last.step, rate, last.workers)


def _points_in(points: Sequence[Step], seconds: float) -> int:
    """How many of these points fall into so many seconds, on average: shorter pieces would show noise."""
    whole = points[-1].time - points[0].time if points else 0.0
    return int(seconds * len(points) / whole) if whole > 0 else 1


def _halved(points: Sequence[Step]) -> list[Step]:
    """Of every four neighbours those with the smallest and the largest loss, in order."""
    kept: list[Step] = []
    for at in range(0, len(points), 4):
        group = points[at : at + 4]
        ends = {min(group, key=_height), max(group, key=_height)}
        kept += [point for point in group if point in ends]
    return kept if kept[-1] is points[-1] else [*kept, points[-1]]


def _height(point: Step) -> float:
    return float("-inf") if point.loss is None else point.loss
