"""Waking those who watch: a subscriber is told that something changed, and reads what it was from where the truth is.

Nothing is queued, so a slow reader costs nothing and nobody can miss or double an event: it remembers its own place
in the store and in the files. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Subscription:
    """One subscriber's bell. `closed` is True when the service stops: then end."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self.closed = False

    def ring(self) -> None:
        """Wake the subscriber, now or at its next wait."""
        self._rung.set()

    def close(self) -> None:
        """Wake it for the last time."""
        self.closed = True
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """True when something changed since the last call, False when `seconds` passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class Hub:
    """All subscribers by job."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Subscription]] = {}
        self._closed = False

    @contextmanager
    def watch(self, job: str) -> Iterator[Subscription]:
        """A bell that rings whenever anything about the job changes."""
        watch = Subscription()
        if self._closed:
            watch.close()
        self._watches.setdefault(job, set()).add(watch)
        try:
            yield watch
        finally:
            watches = self._watches.get(job, set())
            watches.discard(watch)
            if not watches:
                self._watches.pop(job, None)

    def ring(self, job: str) -> None:
        """Wake everybody who watches this job."""
        for watch in self._watches.get(job, ()):
            watch.ring()

    def close(self) -> None:
        """Wake everybody for the last time."""
        self._closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.close()
