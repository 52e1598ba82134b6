"""Wake the subscribers of a job when it changes. A subscriber then reads the change from the store or the files.

Nothing is queued, so a slow reader costs nothing, and no event is lost or doubled: each reader keeps its own position
in the store and in the files. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Subscription:
    """The wake-up signal of a subscriber. `closed` is True when the service stops, and then the subscriber ends."""

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
        """Return True when there was a change since the last call, False when `seconds` passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        # After the wait and before the caller reads, so a change during that read wakes it again.
        self._rung.clear()
        return True


class Hub:
    """All subscribers by job."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Subscription]] = {}
        self._closed = False

    @contextmanager
    def watch(self, job: str) -> Iterator[Subscription]:
        """Subscribe to all changes of the job."""
        watch = Subscription()
        # A subscriber that comes while the service stops must not wait forever.
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
        """Wake the subscribers of this job."""
        for watch in self._watches.get(job, ()):
            watch.ring()

    def close(self) -> None:
        """Wake all subscribers for the last time."""
        self._closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.close()
