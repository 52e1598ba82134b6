"""Tell the time of day without leaps: a clock that is set wrong must end no turn, no wait and no forecast.

Decisions compare times that may lie days apart, on both sides of a restart, so they need the time of day. An
administrator, a time server or a virtual machine can set that to anything. The steady clock follows the wall clock, but
never goes back, and a leap of the wall clock is not followed: time then passes as the machine runs. What was set counts
from the next start (decision 041).
"""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger(__name__)

# Seconds that the wall clock may be behind or ahead and is still followed. A time server corrects by less than a
# minute. A laptop sleeps for days, and in a virtual machine no clock but the wall clock shows that.
BEHIND, AHEAD = 60.0, 7 * 86_400.0
# A machine without a battery for its clock starts somewhere in the past, and hears the time soon after.
_STARTING = 600.0


class SteadyClock:
    """The time of day for decisions. Any thread may use it.

    Args:
        not_before: the time that is known to have passed already, such as that of the newest event in a store.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        wall = time.time()
        self._lock = threading.Lock()
        self._now, self._running = max(wall, not_before), running_for()
        self._leapt = not_before > wall + BEHIND
        if self._leapt:
            log.warning(
                "the newest event is %s ahead of this machine's clock: time goes on from that event",
                _span(not_before - wall),
            )

    def now(self) -> float:
        """Return the seconds since the epoch."""
        with self._lock:
            wall, running = time.time(), running_for()
            steady = self._now + running - self._running
            ahead = wall - steady
            follows = -BEHIND <= ahead <= AHEAD or (ahead > 0 and running < _STARTING)
            if not follows and not self._leapt:
                log.warning(
                    "this machine's clock leapt %s %s: the server keeps its own time until its next start",
                    _span(abs(ahead)),
                    "ahead" if ahead > 0 else "back",
                )
            self._leapt = not follows
            self._now, self._running = max(self._now, wall) if follows else steady, running
            return self._now


def running_for() -> float:
    """Return the seconds since the machine was started."""
    # Goes on while the machine is suspended, which the monotonic clock of Linux does not.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _span(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 7200 else f"{seconds / 86_400:,.1f} days"
