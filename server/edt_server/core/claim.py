"""A claim is what a job asks of the rule. The rule knows nothing else about the job."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """The request of a single job. Counts are slots. `floor`, `cap` and `keep` are multiples of `unit`.

    Attributes:
        group: the instance group it is in, a group without child groups.
        user: its owner, which counts where the group has user shares.
        weight: its priority, ≥ 1.
        order: its unique arrival number. It settles ties, lower first.
        turn: lower runs first while not all floors fit.
        floor: fewest slots it can run with.
        cap: most slots it can use, 0 for a job that asks for nothing.
        unit: slots it takes at a time.
        keep: slots that may not be taken from it, because its group does not preempt.
        speeds: (slots, measured speed) of sizes it has run at, used where the group is throughput-aware.
    """

    job: str
    group: str
    user: str
    weight: int
    order: int
    turn: float
    floor: int
    cap: int
    unit: int = 1
    keep: int = 0
    speeds: tuple[tuple[int, float], ...] = ()


_Entry = tuple[int, int, Claim]  # orders are unique, so that claims themselves are never compared


class Ranking:
    """The claims of a leaf with a strict policy, in the order they are served: by priority, or by arrival.

    The list is kept sorted, because thousands may wait in such a queue while a few of its first jobs change.

    Each claim asks for something.
    """

    __slots__ = ("_by_priority", "_entries", "kept")

    def __init__(self, policy: str, claims: Iterable[Claim]) -> None:
        self._by_priority = policy == "priority"
        self._entries: list[_Entry] = sorted(map(self._entry, claims))
        self.kept = sum(min(claim.keep, claim.cap) for _, _, claim in self._entries)  # slots that its jobs keep

    def put(self, claim: Claim) -> None:
        """Add a new job's claim."""
        insort(self._entries, self._entry(claim))
        self.kept += min(claim.keep, claim.cap)

    def drop(self, claim: Claim) -> None:
        """Remove a job, given exactly its present claim."""
        place = bisect_left(self._entries, self._entry(claim)[:2])
        assert self._entries[place][2] == claim, f"{claim.job} is not in line"
        del self._entries[place]
        self.kept -= min(claim.keep, claim.cap)

    def claims(self) -> list[Claim]:
        """Return all claims, in the order they are served."""
        return [claim for _, _, claim in self._entries]

    def first(self, slots: int) -> Claim | None:
        """Return the first claim that can run at all on so many slots, None when there is no such claim."""
        for _, _, claim in self._entries:
            if min(max(claim.floor, claim.keep), claim.cap) <= slots:
                return claim
        return None

    def _entry(self, claim: Claim) -> _Entry:
        return -claim.weight if self._by_priority else 0, claim.order, claim
