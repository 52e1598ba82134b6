"""Which workers hang, from their signs of life. Pure: time comes in.

A worker says what it begins and when (`edt_sdk.schemas.wire.pulse`). One that should compute and has neither said
anything new nor used the processor for very long hangs; one that uses it may take ten times as long; all of them
waiting for each other hang together. How long is very long is learned from the longest that one computed and still
went on. A process that is stopped (SIGSTOP) is known from its state, whatever it should be doing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from edt_sdk.schemas.wire.pulse import Beat, Phase

STOPPED_PATIENCE = 5.0
STOPPED_STATES = frozenset({"T", "t"})
LONGEST_GAPS = 10
BUSY_FACTOR = 10
# In units of `hang_timeout`: for a worker that sleeps; and before the first update, when kernels and caches are built.
SLEEPING, STARTING = 2, 10
# Less of a processor than this is what threads use that wait.
IDLE_SHARE, IDLE_SECONDS = 0.01, 0.02


@dataclass(frozen=True, slots=True)
class Sight:
    """One worker, as seen from outside.

    Attributes:
        takes_part: it is in a generation, and so has to move.
        beat: its last sign of life, None while there was none.
        state: of its process, as in /proc/<pid>/stat.
        cpu: seconds that it and its children have used, None when nobody looked.
    """

    worker: int
    takes_part: bool
    beat: Beat | None
    state: str
    cpu: float | None


@dataclass(frozen=True, slots=True)
class Hang:
    """The worker is to be killed; `why` is the predicate of a sentence."""

    worker: int
    why: str


@dataclass(slots=True)
class _Watched:
    stopped_since: float | None = None
    part_since: float | None = None
    beat: Beat | None = None
    cpu: float = 0.0
    active: float = 0.0
    told: bool = False


class Watchdog:
    """Looks at all workers of a job, about twice a second.

    Args:
        hang_timeout: seconds, as in `control.Launch`.
    """

    def __init__(self, hang_timeout: float) -> None:
        self._hang_timeout = hang_timeout
        self._watched: dict[int, _Watched] = {}
        self._longest = 0.0

    def look(self, sights: Collection[Sight], *, committed: bool, now: float) -> list[Hang]:
        """Those that hang; each is named once.

        Args:
            sights: all workers there are.
            committed: whether the training has committed any update.
            now: monotonic seconds, the clock of the beats.
        """
        self._watched = {sight.worker: self._watched.get(sight.worker, _Watched(active=now)) for sight in sights}
        for sight in sights:
            self._learn(sight, now)
        limit = max(SLEEPING * self._hang_timeout, LONGEST_GAPS * self._longest)
        if not committed:
            limit = max(limit, STARTING * self._hang_timeout)
        found = [hang for sight in sights if (hang := self._hang(sight, limit, now)) is not None]
        if not found:
            found = self._deadlock([sight for sight in sights if sight.takes_part], limit, now)
        found = [hang for hang in found if not self._watched[hang.worker].told]
        for hang in found:
            self._watched[hang.worker].told = True
        return found

    def _learn(self, sight: Sight, now: float) -> None:
        watched, before = self._watched[sight.worker], self._watched[sight.worker].beat
        if sight.state not in STOPPED_STATES:
            watched.stopped_since = None
        elif watched.stopped_since is None:
            watched.stopped_since = now
        if not sight.takes_part:
            watched.part_since = None
        elif watched.part_since is None:
            watched.part_since = now
        if sight.beat != before and sight.beat is not None:
            if before is not None and before.phase is Phase.COMPUTING:
                self._longest = max(self._longest, sight.beat.since - before.since)
            watched.beat = sight.beat
            watched.active = now
        if sight.cpu is None:
            watched.active = now
        elif sight.cpu - watched.cpu > IDLE_SHARE * (now - watched.active) + IDLE_SECONDS:
            watched.cpu, watched.active = sight.cpu, now

    def _hang(self, sight: Sight, limit: float, now: float) -> Hang | None:
        watched = self._watched[sight.worker]
        if watched.stopped_since is not None and now - watched.stopped_since >= STOPPED_PATIENCE:
            return Hang(sight.worker, f"was stopped for {now - watched.stopped_since:.0f} s")
        if sight.beat is None or sight.beat.phase is not Phase.COMPUTING:
            return None
        age = self._age(sight, now)
        if age >= BUSY_FACTOR * limit:
            return Hang(sight.worker, f"did not get on for {age:.0f} s")
        if min(age, now - watched.active) >= limit:
            return Hang(sight.worker, f"did not move for {age:.0f} s")
        return None

    def _deadlock(self, members: list[Sight], limit: float, now: float) -> list[Hang]:
        """Everybody waits: whoever is furthest behind, or waits for longest, is most likely to be waited for."""
        waiting = [
            sight.beat for sight in members if sight.beat is not None and sight.beat.phase is not Phase.COMPUTING
        ]
        if not members or len(waiting) < len(members) or any(self._age(sight, now) < limit for sight in members):
            return []
        _, _, last = min((beat.updates, beat.since, n) for n, beat in enumerate(waiting))
        age = self._age(members[last], now)
        return [Hang(members[last].worker, f"did not move for {age:.0f} s, nor did any other")]

    def _age(self, sight: Sight, now: float) -> float:
        """For how long it has begun nothing new that it should; 0 for one that need not."""
        since = self._watched[sight.worker].part_since
        return 0.0 if since is None or sight.beat is None else now - max(since, sight.beat.since)
