"""Limit how often a job is retried: the limit on deaths without progress. Pure.

Progress, an update committed beyond the highest known, resets every count. Without progress a job may lose a number of
generations to outside causes, and a smaller number to its own code or to hangs. Before its first committed update its
own code may not fail at all: nothing is lost then, and the author is waiting (decision 010). Workers that exit before
they were members are counted by slot: a worker that cannot join is no reason to stop the others.
"""

from __future__ import annotations

from enum import Enum

OWN_LIMIT = 3
HANG_LIMIT = 3
OUTSIDE_LIMIT = 10
SLOT_LIMIT = 3
DRIVER_LIMIT = 2


class DeathCause(Enum):
    """The causes of a death."""

    OWN = "the job's own code: an exception, an exit, a crash"
    HANG = "a process that should compute did not, and nothing outside explains it"
    OUTSIDE = "a signal from elsewhere, a stopped process, a disk that does not answer, a network that broke"


class Attempts:
    """The retry limit of a job. `ever` is true when an earlier training of the job has committed updates."""

    def __init__(self, committed: int = 0, *, ever: bool = False) -> None:
        self._driver = 0
        self._ever = ever
        self.begin(committed)

    def begin(self, committed: int = 0) -> None:
        """Start a training, or resume one where `committed` updates are known to be committed."""
        self.committed = committed
        """The highest number of committed updates of this training that was reported."""
        self._ever |= committed > 0
        self._since = dict.fromkeys(DeathCause, 0)
        self._counted: dict[DeathCause, int | None] = dict.fromkeys(DeathCause)
        self._in_slot: dict[int, dict[DeathCause, int]] = {}

    @property
    def given_up(self) -> frozenset[int]:
        """The slots where workers failed three times in a row to reach a generation."""
        return frozenset(slot for slot, ends in self._in_slot.items() if sum(ends.values()) >= SLOT_LIMIT)

    def progress(self, update: int) -> None:
        """Record that `update` updates are committed."""
        if update > self.committed:
            self.committed = update
            self._ever = True
            self._since = dict.fromkeys(DeathCause, 0)
            self._driver = 0

    def became_member(self, slot: int) -> None:
        """Record that a worker of this slot is in a generation that formed."""
        self._in_slot.pop(slot, None)

    def member_ended(self, kind: DeathCause, generation: int, *, final: bool = False) -> int:
        """Count the death of a member. Return the number of attempts when the limit is reached, else 0.

        `final` means that a retry is useless.
        """
        # Several deaths in one generation have one cause.
        if self._counted[kind] != generation:
            self._counted[kind] = generation
            self._since[kind] += 1
        return self._verdict(kind, self._since[kind], final=final)

    def outsider_ended(self, kind: DeathCause, slot: int, *, alone: bool, final: bool = False) -> int:
        """Count the exit of a worker that was in no generation yet. Return the same as `member_ended`.

        `alone` means that no worker trains: then the same limit holds as for members.
        """
        ends = self._in_slot.setdefault(slot, dict.fromkeys(DeathCause, 0))
        ends[kind] += 1
        return self._verdict(kind, ends[kind], final=final) if alone or final else 0

    def driver_ended(self) -> int:
        """Count a kill of the driver. Return the same as `member_ended`."""
        self._driver += 1
        return self._driver if self._driver >= DRIVER_LIMIT else 0

    def _verdict(self, kind: DeathCause, times: int, *, final: bool) -> int:
        match kind:
            case DeathCause.OWN:
                over = final or not self._ever or times >= OWN_LIMIT
            case DeathCause.HANG:
                # Also before the first update: a slow disk can look like a hang, so once is no proof.
                over = times >= HANG_LIMIT
            case DeathCause.OUTSIDE:
                over = times > OUTSIDE_LIMIT
        return times if over else 0
