"""Median and worst of a measurement, and whether a figure is where it should be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

# Below this many seconds a measured time is noise of the clocks involved; ratios divide by no less.
RESOLUTION = 0.001


@dataclass(frozen=True, slots=True)
class Summary:
    """Times of one kind, in seconds: how many, their median, the worst."""

    n: int
    median: float
    worst: float

    def text(self) -> str:
        """`"31 ms, worst 45 ms (n=20)"`."""
        return f"{duration(self.median)}, worst {duration(self.worst)} (n={self.n})"


def summarize(times: Sequence[float]) -> Summary | None:
    """The summary of some times in seconds; None of none."""
    return Summary(len(times), median(times), max(times)) if times else None


def ratio(theirs: Summary | None, ours: Summary | None) -> float | None:
    """How many times longer theirs takes, by the medians; None where one was not measured.

    Ours may lie within the clock's resolution, or below zero where a stall is lost in the noise of the updates: then
    it counts as 1 ms.
    """
    if theirs is None or ours is None:
        return None
    return theirs.median / max(ours.median, RESOLUTION)


@dataclass(frozen=True, slots=True)
class Check:
    """A figure against its target.

    Attributes:
        what: it is, with its unit.
        value: measured; None when it was not measured, which is not reached either.
        target: to compare with.
        side: "at most" or "at least".
    """

    what: str
    value: float | None
    target: float
    side: Literal["at most", "at least"]

    @property
    def reached(self) -> bool:
        """Whether the figure is where it should be."""
        if self.value is None:
            return False
        return self.value <= self.target if self.side == "at most" else self.value >= self.target

    def text(self) -> str:
        """One line for people."""
        value = "not measured" if self.value is None else f"{self.value:.3g}"
        return f"{'ok  ' if self.reached else 'MISS'} {self.what}: {value} (target: {self.side} {self.target:g})"


def duration(seconds: float) -> str:
    """`"31 ms"` or `"1.24 s"`."""
    return f"{seconds * 1000:.0f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"
