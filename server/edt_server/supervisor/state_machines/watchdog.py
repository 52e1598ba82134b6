"""Find the workers that hang, by their heartbeats. Pure: the time is an argument.

A worker's heartbeat names its phase and when that started (`edt_sdk.schemas.wire.pulse`). A worker that should compute
hangs when it has neither a new heartbeat nor used the processor for very long. A worker that uses the processor may
take ten times as long. Workers that all wait for each other hang together. "Very long" is learned from the longest
computation that did finish. A stopped process (SIGSTOP) is known by its state, whatever its phase.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from edt_sdk.schemas.wire.pulse import Beat, Phase

STOPPED_PATIENCE = 5.0
STOPPED_STATES = frozenset({"T", "t"})
# The process waits inside the kernel, nearly always for a disk or a file server.
DISK_STATE = "D"
LONGEST_GAPS = 10
BUSY_FACTOR = 10
# In units of `hang_timeout`: for a sleeping worker, and before the first update, when kernels and caches are built.
SLEEPING, STARTING = 2, 10
# Waiting threads use less of a processor than this.
IDLE_SHARE, IDLE_SECONDS = 0.01, 0.02


@dataclass(frozen=True, slots=True)
class Observation:
    """A worker, as observed from outside.

    Attributes:
        takes_part: it is in a generation, and so has to make progress.
        beat: its last heartbeat, None before the first.
        state: the state of its process, as in /proc/<pid>/stat.
        cpu: processor seconds that it and its children have used, None when they were not looked up.
    """

    worker: int
    takes_part: bool
    beat: Beat | None
    state: str
    cpu: float | None


@dataclass(frozen=True, slots=True)
class Hang:
    """A worker that has to be killed. `why` is the predicate of a sentence.

    With `own` nothing outside of the process explains the hang: it was not stopped, and waits for no disk and no peer.
    """

    worker: int
    why: str
    own: bool = False


@dataclass(slots=True)
class _Watched:
    stopped_since: float | None = None
    part_since: float | None = None
    beat: Beat | None = None
    cpu: float = 0.0
    active: float = 0.0
    told: bool = False


class Watchdog:
    """Judges all workers of a job, about twice a second. `hang_timeout` is as in `control.Launch`."""

    def __init__(self, hang_timeout: float) -> None:
        self._hang_timeout = hang_timeout
        self._watched: dict[int, _Watched] = {}
        self._longest = 0.0

    def look(self, observations: Collection[Observation], *, committed: bool, now: float) -> list[Hang]:
        """Return the workers that hang. Each is named once.

        `committed` is true once the training has an update. `now` is in monotonic seconds, the clock of the beats.
        """
        self._watched = {seen.worker: self._watched.get(seen.worker, _Watched(active=now)) for seen in observations}
        for seen in observations:
            self._learn(seen, now)
        # A fixed timeout would kill large models that need minutes for an update, or let small ones hang for as long.
        limit = max(SLEEPING * self._hang_timeout, LONGEST_GAPS * self._longest)
        if not committed:
            limit = max(limit, STARTING * self._hang_timeout)
        found = [hang for seen in observations if (hang := self._hang(seen, limit, now)) is not None]
        if not found:
            found = self._deadlock([seen for seen in observations if seen.takes_part], limit, now)
        found = [hang for hang in found if not self._watched[hang.worker].told]
        for hang in found:
            self._watched[hang.worker].told = True
        return found

    def _learn(self, seen: Observation, now: float) -> None:
        watched, before = self._watched[seen.worker], self._watched[seen.worker].beat
        if seen.state not in STOPPED_STATES:
            watched.stopped_since = None
        elif watched.stopped_since is None:
            watched.stopped_since = now
        if not seen.takes_part:
            watched.part_since = None
        elif watched.part_since is None:
            watched.part_since = now
        if seen.beat != before and seen.beat is not None:
            if before is not None and before.phase is Phase.COMPUTING:
                self._longest = max(self._longest, seen.beat.since - before.since)
            watched.beat = seen.beat
            watched.active = now
        if seen.cpu is None:
            # Not looked up, because its heartbeat is recent enough.
            watched.active = now
        elif seen.cpu - watched.cpu > IDLE_SHARE * (now - watched.active) + IDLE_SECONDS:
            watched.cpu, watched.active = seen.cpu, now

    def _hang(self, seen: Observation, limit: float, now: float) -> Hang | None:
        watched = self._watched[seen.worker]
        if watched.stopped_since is not None and now - watched.stopped_since >= STOPPED_PATIENCE:
            return Hang(seen.worker, f"was stopped for {now - watched.stopped_since:.0f} s")
        if seen.beat is None or seen.beat.phase is not Phase.COMPUTING:
            return None
        age = self._age(seen, now)
        own, place = seen.state != DISK_STATE, _place(seen.beat)
        if age >= BUSY_FACTOR * limit:
            return Hang(seen.worker, f"did not get on for {age:.0f} s {place}", own)
        if min(age, now - watched.active) >= limit:
            return Hang(seen.worker, f"did not move for {age:.0f} s {place}", own)
        return None

    def _deadlock(self, members: list[Observation], limit: float, now: float) -> list[Hang]:
        """Return the hang of a deadlock: the worker that is furthest behind, then the one that waits longest."""
        waiting = [seen.beat for seen in members if seen.beat is not None and seen.beat.phase is not Phase.COMPUTING]
        if not members or len(waiting) < len(members) or any(self._age(seen, now) < limit for seen in members):
            return []
        _, _, last = min((beat.updates, beat.since, n) for n, beat in enumerate(waiting))
        age = self._age(members[last], now)
        return [Hang(members[last].worker, f"did not move for {age:.0f} s, nor did any other")]

    def _age(self, seen: Observation, now: float) -> float:
        """Return for how long it has started nothing new although it should. 0 for a worker that need not."""
        since = self._watched[seen.worker].part_since
        return 0.0 if since is None or seen.beat is None else now - max(since, seen.beat.since)


def _place(beat: Beat) -> str:
    return f"after update {beat.updates}" if beat.updates else "before the first update"
