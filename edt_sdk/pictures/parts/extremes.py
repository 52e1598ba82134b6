"""A long row of values in few points: of every stretch of updates the smallest and the largest, and one that is none.

All stretches are equally long, and become twice as long when there are too many: what happened at the beginning of a
training is told as finely as what happens now, however long it is, and each point is looked at a few times. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar


class Value(Protocol):
    """An update, and a value that may be no number (None)."""

    @property
    def update(self) -> int:
        """Its number."""

    @property
    def loss(self) -> float | None:
        """The value."""


Point = TypeVar("Point", bound=Value)
Each = TypeVar("Each")


class Extremes(Generic[Point]):
    """The extremes of points that come in order of their updates.

    Args:
        most: stretches that are kept at most; of each up to three points.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._width = 1
        self._keys: list[int] = []
        # Smallest, largest and first without a number of each stretch.
        self._kept: list[list[Point | None]] = []
        self._low = self._high = 0.0

    def wants(self, update: int, loss: float | None) -> bool:
        """Whether a point with these would be kept: most are not, and need not be made."""
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
        """Forget every point from this update on: those updates were lost, and come again."""
        while self._keys and self._keys[-1] * self._width >= update:
            self._keys.pop()
            self._kept.pop()
        if self._keys:
            left = [point for point in self._kept[-1] if point is not None and point.update < update]
            self._kept[-1] = [None, None, None]
            for point in left:
                self._take(self._kept[-1], point)
            if not left:
                self._keys.pop()
                self._kept.pop()
        self._look_at_last()

    def points(self) -> Iterator[Point]:
        """What is kept, in order of the updates, none twice."""
        for some in self._kept:
            seen = {point.update: point for point in some if point is not None}
            yield from (seen[update] for update in sorted(seen))

    def _look_at_last(self) -> None:
        low, high = (self._kept[-1][0], self._kept[-1][1]) if self._kept else (None, None)
        self._low, self._high = _loss(low), _loss(high)

    def _halve(self) -> None:
        keys, kept = self._keys, self._kept
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
    """The value; one that is no number is what must be kept before all."""
    return float("-inf") if point.loss is None else point.loss


def fewest(points: Sequence[Each], most: int, tall: Callable[[Each], float]) -> tuple[Each, ...]:
    """At most so many (≥ 4) of the points: the first, the last, and the extremes of equally many neighbours.

    So no spike is lost: the largest and the smallest of all are always among them.

    Args:
        points: in order.
        most: how many.
        tall: what a point is judged by, such as `height`.
    """
    if len(points) <= most:
        return tuple(points)
    stretches = (most - 2) // 2
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        group = range(stretch * len(points) // stretches, (stretch + 1) * len(points) // stretches)
        kept |= {min(group, key=lambda at: tall(points[at])), max(group, key=lambda at: tall(points[at]))}
    return tuple(points[at] for at in sorted(kept))
