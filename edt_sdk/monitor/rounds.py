"""The one thread behind all monitors of a process: it gives each its turn, one after the other.

However many monitors are open, together they have at most four turns a second, so that ten cost a server what four do.
A monitor that nobody looks at has no turn; without monitors there is no thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

# Seconds between two turns of one monitor, at least; and what each open monitor adds once there are several.
SHORTEST = 1.0
EACH = 0.25


class Watcher(Protocol):
    """Whoever has turns.

    Attributes:
        due: `time.monotonic()` of the next turn; infinity for none until it is woken.
        over: there will be no further turn.
    """

    due: float

    @property
    def over(self) -> bool: ...  # noqa: D102
    def turn(self) -> None:
        """Whatever is to be done now; whatever goes wrong in it is its own."""


class Rounds:
    """Watchers and their thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watchers: list[Watcher] = []
        self._thread: threading.Thread | None = None

    def add(self, watcher: Watcher) -> None:
        """Give it turns from now on, until it is over."""
        with self._condition:
            self._watchers.append(watcher)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="edt-monitor", daemon=True)
                self._thread.start()
            self._condition.notify()

    def wake(self, watcher: Watcher) -> None:
        """Its next turn is now."""
        with self._condition:
            watcher.due = 0.0
            self._condition.notify()

    def settle(self, watcher: Watcher, due: Callable[[], float]) -> None:
        """Set its next turn, without losing a `wake` that comes meanwhile."""
        with self._condition:
            watcher.due = due()

    def watchers(self) -> list[Watcher]:
        """Those that have turns."""
        with self._condition:
            return list(self._watchers)

    def interval(self) -> float:
        """Seconds until a watcher whose turn it was may have the next one."""
        with self._condition:
            looked_at = sum(1 for each in self._watchers if each.due < float("inf"))
        return max(SHORTEST, EACH * looked_at)

    def _run(self) -> None:
        while (watcher := self._next()) is not None:
            watcher.turn()

    def _next(self) -> Watcher | None:
        """Wait until somebody is due; None when nobody is left."""
        with self._condition:
            while True:
                self._watchers = [watcher for watcher in self._watchers if not watcher.over]
                if not self._watchers:
                    self._thread = None
                    return None
                first = min(self._watchers, key=lambda watcher: watcher.due)
                left = first.due - time.monotonic()
                if left <= 0:
                    return first
                self._condition.wait(None if left == float("inf") else left)


ROUNDS = Rounds()
