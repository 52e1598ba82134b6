"""A wall clock that a test sets, while the machine's own time goes on as it does or as the test says."""

from __future__ import annotations

import time

import pytest

YEAR = 365 * 86_400.0


class Clocks:
    """`time.time` and CLOCK_BOOTTIME of this process, standing still until the test moves them.

    Attributes:
        running: seconds since the machine was started.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._wall = time.time()
        self.running = 100_000.0
        patch.setattr(time, "time", lambda: self._wall)
        patch.setattr(time, "clock_gettime", lambda _: self.running)

    def pass_time(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self._wall += seconds
        self.running += seconds

    def set_by(self, seconds: float) -> None:
        """Set the wall clock, as an administrator does."""
        self._wall += seconds


def set_wall_clock(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the wall clock of this process by so much, and let it go on."""
    real = time.clock_gettime
    patch.setattr(time, "time", lambda: real(time.CLOCK_REALTIME) + seconds)
