"""A long series in few points: the minimum, the maximum and one missing value of each interval of updates. Pure.

All intervals have the same length, which doubles when there are too many intervals. So the start of a training is kept
in as much detail as its end, at any length, and each point is looked at a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar


class Value(Protocol):
    """An update and its value, None for a value that is not a number."""

    @property
    def update(self) -> int:
        """The number of the update."""

    @property
    def loss(self) -> float | None:
        """The value of the update."""


Point = TypeVar("Point", bound=Value)
Each = TypeVar("Each")


class Extremes(Generic[Point]):
    """Keeps the extremes of points that arrive in order of their updates: up to three in each of `most` intervals."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._width = 1
        self._keys: list[int] = []
        # Minimum, maximum and first missing value of each interval.
        self._kept: list[list[Point | None]] = []
        self._low = self._high = 0.0

    def wants(self, update: int, loss: float | None) -> bool:
        """Return whether such a point would be kept. Most are not, and the caller need not create them."""
        # The first point of an interval is always an extreme.
        if not self._keys or update // self._width != self._keys[-1]:
            return True
        if loss is None:
            return self._kept[-1][2] is None
        low = self._kept[-1][0]
        return low is None or loss < self._low or loss > self._high

    def add(self, point: Point) -> None:
        """Take the next point."""
        key = point.update // self._width
        if not self._keys or key != self._keys[-1]:
            self._keys.append(key)
            self._kept.append([None, None, None])
            if len(self._keys) > self._most:
                self._halve()
        self._take(self._kept[-1], point)
        self._look_at_last()

    def forget(self, update: int) -> None:
        """Drop every point from this update on, because these updates were lost and will be recomputed."""
        while self._keys and self._keys[-1] * self._width >= update:
            self._keys.pop()
            self._kept.pop()
        if self._keys:
            # The interval may have started before `update`: its earlier points stay.
            left = [point for point in self._kept[-1] if point is not None and point.update < update]
            self._kept[-1] = [None, None, None]
            for point in left:
                self._take(self._kept[-1], point)
            if not left:
                self._keys.pop()
                self._kept.pop()
        self._look_at_last()

    def points(self) -> Iterator[Point]:
        """Iterate over the kept points in order of their updates, without duplicates."""
        for some in self._kept:
            seen = {point.update: point for point in some if point is not None}
            yield from (seen[update] for update in sorted(seen))

    def _look_at_last(self) -> None:
        low, high = (self._kept[-1][0], self._kept[-1][1]) if self._kept else (None, None)
        # Kept as plain numbers, because `wants` runs for every line of a metrics file.
        self._low, self._high = _loss(low), _loss(high)

    def _halve(self) -> None:
        keys, kept = self._keys, self._kept
        # All intervals become twice as wide, so that they stay equally long over the whole training. To halve only the
        # older half, which is simpler, forgets the start exponentially (028).
        self._width *= 2
        self._keys, self._kept = [], []
        for key, some in zip(keys, kept, strict=True):
            if not self._keys or key // 2 != self._keys[-1]:
                self._keys.append(key // 2)
                self._kept.append(some)
                continue
            for point in some:
                if point is not None:
                    self._take(self._kept[-1], point)

    @staticmethod
    def _take(some: list[Point | None], point: Point) -> None:
        if point.loss is None:
            some[2] = some[2] or point
            return
        if some[0] is None or point.loss < _loss(some[0]):
            some[0] = point
        if some[1] is None or point.loss > _loss(some[1]):
            some[1] = point


def _loss(point: Value | None) -> float:
    return 0.0 if point is None or point.loss is None else point.loss


def height(point: Value) -> float:
    """Return the value, or -inf for a missing one, so that thinning keeps it."""
    return float("-inf") if point.loss is None else point.loss


def fewest(points: Sequence[Each], most: int, tall: Callable[[Each], float]) -> tuple[Each, ...]:
    """Return at most `most` (≥ 4) points: the first, the last, and the extremes of equally large groups.

    No spike is lost: the largest and the smallest value of all are always among them. `tall` gives the value that
    points are compared by, such as `height`.
    """
    if len(points) <= most:
        return tuple(points)
    stretches = (most - 2) // 2
    # Both ends always stay: a curve that misses its newest value looks stalled.
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        group = range(stretch * len(points) // stretches, (stretch + 1) * len(points) // stretches)
        kept |= {min(group, key=lambda at: tall(points[at])), max(group, key=lambda at: tall(points[at]))}
    return tuple(points[at] for at in sorted(kept))
