"""Weigh one slot more for a job with measured speeds: the gain in log speed, on the hull of its table.

With the logarithm as utility a slot goes where it speeds up most in proportion, and no job is left behind for another
that is faster in absolute terms. On the hull the gains fall from slot to slot, which is all that a divisor rule needs
for its guarantees. Measured speeds are floats. They become integers here, before anything is compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

SCALE = 1 << 32  # integer steps per unit of log speed
FIRST = 2 * SCALE  # a first slot is worth more than any second one, which at most doubles the speed: log 2
_MARKS = 10_000  # speeds are compared to four digits, finer than they can be measured


class Speedup:
    """The gains of a job, from its measured speeds.

    Below the smallest measured size, and above the largest, speed is assumed to grow with the slots, but above never
    faster than it did last: a size has to be tried to be known. A size that was measured to slow the job down is worth
    nothing.

    `speeds` has (slots ≥ 1, speed > 0 in any unit) of each measured size, none for a job without measurements.
    """

    __slots__ = ("_gains", "_last", "most")

    def __init__(self, speeds: Sequence[tuple[int, float]]) -> None:
        points = _hull(_points(speeds))  # starts at one slot
        self._gains: list[int] = []
        self.most: int | None = None  # slots beyond which it gets slower, None where not measured
        for (low, a), (high, b) in pairwise(points):
            # On a concave hull every larger size is slower still.
            if b <= a:
                self.most = low
                break
            self._gains += [(b - a) // (high - low)] * (high - low)
        self._last = self._gains[-1] if self._gains else SCALE

    def gain(self, held: int, unit: int = 1) -> int:
        """Return what each of `unit` slots on top of `held` is worth. It is never worth more than the slot before."""
        if unit > 1:
            return sum(self.gain(held + more) for more in range(unit)) // unit
        if held == 0:
            return FIRST
        if self.most is not None and held >= self.most:
            return 0
        if held - 1 < len(self._gains):
            return self._gains[held - 1]
        # Log speed grows by that much where speed grows with the slots.
        return min(self._last, round(math.log1p(1 / held) * SCALE))


class _Strict(Speedup):
    """A speedup with slots of equal worth: the strongest claim gets all it asks for before the next."""

    def gain(self, held: int, unit: int = 1) -> int:
        return 1


@lru_cache(maxsize=4096)
def speedup(speeds: tuple[tuple[int, float], ...]) -> Speedup:
    """Return the `Speedup` of a table. Equal tables share an object in a cache."""
    return Speedup(speeds)


def _points(speeds: Sequence[tuple[int, float]]) -> list[tuple[int, int]]:
    """Return (slots, log speed as an integer), from one slot on, ascending."""
    known = sorted((slots, speed) for slots, speed in dict(speeds).items() if slots >= 1 and speed > 0)
    if not known:
        return [(1, 0)]
    least, slowest = known[0]
    base = math.log(slowest)
    logs = [(slots, round((math.log(speed) - base) * _MARKS) * (SCALE // _MARKS)) for slots, speed in known]
    before = [(slots, -round(math.log(least / slots) * SCALE)) for slots in range(1, least)]
    return before + logs


def _hull(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the points on the concave upper hull, ascending."""
    hull: list[tuple[int, int]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) <= (y - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull


EACH_LIKE_THE_FIRST: Speedup = _Strict(())
