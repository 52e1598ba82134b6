"""How often a job may be tried again: the bound on deaths that lead nowhere. Pure.

Progress, an update committed beyond the highest known, forgets every death before it. Without progress a job may lose
its generation so often from outside, and fail by its own code so often; before anything was committed its own code may
not fail at all: nothing is lost then, and whoever wrote it is waiting. Workers that end before they were members are
counted by slot: while others train, one that cannot come in is no reason to stop those.
"""

from __future__ import annotations

from enum import Enum

OWN_LIMIT = 3
OUTSIDE_LIMIT = 10
SLOT_LIMIT = 3
DRIVER_LIMIT = 2


class Kind(Enum):
    """Where a death came from."""

    OWN = "the job's own code: an exception, an exit, a crash"
    OUTSIDE = "a signal from elsewhere, a process that hung, a network that broke"


class Attempts:
    """The bound of one job.

    Args:
        committed: updates of the running training that are known to be committed.
        ever: whether an earlier training of the job committed any.
    """

    def __init__(self, committed: int = 0, *, ever: bool = False) -> None:
        self._driver = 0
        self._ever = ever
        self.begin(committed)

    def begin(self, committed: int = 0) -> None:
        """A training begins, or goes on where `committed` updates are known to be committed."""
        self._committed = committed
        self._ever |= committed > 0
        self._since = dict.fromkeys(Kind, 0)
        self._counted: dict[Kind, int | None] = dict.fromkeys(Kind)
        self._in_slot: dict[int, dict[Kind, int]] = {}

    @property
    def committed(self) -> int:
        """The highest number of committed updates of this training that anybody spoke of."""
        return self._committed

    @property
    def given_up(self) -> frozenset[int]:
        """Slots in which no worker came as far as a generation, three times in a row."""
        return frozenset(slot for slot, ends in self._in_slot.items() if sum(ends.values()) >= SLOT_LIMIT)

    def progress(self, update: int) -> None:
        """`update` updates are committed."""
        if update > self._committed:
            self._committed = update
            self._ever = True
            self._since = dict.fromkeys(Kind, 0)
            self._driver = 0

    def became_member(self, slot: int) -> None:
        """A worker of this slot is in a generation that formed."""
        self._in_slot.pop(slot, None)

    def member_ended(self, kind: Kind, generation: int, *, final: bool = False) -> int:
        """A member died. How often it was tried when that was once too often, else 0.

        Args:
            kind: where its death came from.
            generation: in which it was; several that die in one count once.
            final: trying again leads nowhere.
        """
        if self._counted[kind] != generation:
            self._counted[kind] = generation
            self._since[kind] += 1
        return self._verdict(kind, self._since[kind], final=final)

    def outsider_ended(self, kind: Kind, slot: int, *, alone: bool, final: bool = False) -> int:
        """A worker ended that was in no generation yet; answer as of `member_ended`.

        Args:
            kind: where its end came from.
            slot: in which it was.
            alone: nobody trains: then the same bound holds as for members.
            final: trying again leads nowhere.
        """
        ends = self._in_slot.setdefault(slot, dict.fromkeys(Kind, 0))
        ends[kind] += 1
        return self._verdict(kind, ends[kind], final=final) if alone or final else 0

    def driver_ended(self) -> int:
        """The driver was killed; answer as of `member_ended`."""
        self._driver += 1
        return self._driver if self._driver >= DRIVER_LIMIT else 0

    def _verdict(self, kind: Kind, times: int, *, final: bool) -> int:
        own = final or not self._ever or times >= OWN_LIMIT
        over = own if kind is Kind.OWN else times > OUTSIDE_LIMIT
        return times if over else 0
