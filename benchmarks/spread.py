"""How many times are spread: median, the slowest of a hundred, the worst. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """How some times are spread, in seconds."""

    n: int
    median: float
    p99: float
    worst: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Spread:
        """The spread of at least one time."""
        ordered = sorted(times)
        return cls(
            len(ordered),
            ordered[len(ordered) // 2],
            ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
            ordered[-1],
        )

    def row(self, what: str) -> list[str]:
        """Its line of the table."""
        return [what, str(self.n), *(f"{value * 1000:.1f} ms" for value in (self.median, self.p99, self.worst))]
