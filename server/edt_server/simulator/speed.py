"""Compute how fast an application is at a number of workers: the concave function through its measured points.

Between measured sizes the speed is interpolated linearly. Below the smallest it goes to 0 at 0 workers. Above the
largest it stays constant, because nothing was measured there. A point below the line between its neighbours is raised
to it (the upper concave hull), because the scheduler's rule needs gains that do not grow again.

Where there is no table, `by_law` is used: speed(n) = speed(1) · n ÷ (1 + s·(n − 1)), Amdahl's law with s, the serial
part, 0.05: 8 workers are 5.9 times as fast as one, 64 workers 15.4 times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

SERIAL_PART = 0.05


@dataclass(frozen=True, slots=True)
class Speed:
    """Samples per second (or any unit of work per second) at a number of workers, made with `of` or `by_law`.

    Attributes:
        corners: (workers, speed) where the slope changes, ascending, from (0, 0) on.
    """

    corners: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float]]) -> Speed:
        """Return the concave function through points of workers ≥ 1 and speed > 0, else raise ValueError."""
        measured = dict(points)
        if not measured or any(workers < 1 or not 0 < speed < float("inf") for workers, speed in measured.items()):
            raise ValueError(f"speeds are positive numbers at one worker or more, not {measured}")
        hull: list[tuple[float, float]] = [(0.0, 0.0)]
        for workers, speed in sorted(measured.items()):
            # A corner below the line from its predecessor to the new point would make a later gain larger than an
            # earlier one.
            while len(hull) > 1 and _slope(hull[-2], (workers, speed)) >= _slope(hull[-2], hull[-1]):
                hull.pop()
            hull.append((float(workers), speed))
        return cls(tuple(hull))

    @classmethod
    def by_law(cls, most: int) -> Speed:
        """Return Amdahl's law for 1 … `most` workers, relative to the speed of a single one."""
        return cls.of((n, n / (1 + SERIAL_PART * (n - 1))) for n in range(1, max(1, most) + 1))

    def at(self, workers: float) -> float:
        """Return the speed at so many workers. A fraction is a share of a slot's time."""
        if workers <= 0:
            return 0.0
        # Infinity as the speed places the search after a corner at exactly `workers`.
        after = bisect_right(self.corners, (workers, float("inf")))
        if after == len(self.corners):
            return self.corners[-1][1]
        left, right = self.corners[after - 1], self.corners[after]
        return left[1] + _slope(left, right) * (workers - left[0])

    def table(self, most: int) -> dict[int, float]:
        """Return the speed at 1 … `most` workers, in the form that the scheduler takes."""
        return {n: self.at(n) for n in range(1, most + 1)}

    @property
    def most(self) -> int:
        """Return the workers of its highest point, beyond which nothing is gained."""
        # The smallest of equally fast sizes: more workers would gain nothing.
        return int(max(self.corners, key=lambda corner: (corner[1], -corner[0]))[0])


def _slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
