"""Find what keeps a job from one slot more: where its next claim lost, and against which claim.

This module returns numbers. `reason` makes sentences of them. Under a divisor rule the answer is one comparison: the
job's claim to its next slot, and the weakest claim of another job that still won. Where the job's own group has no
such rival the comparison is one level up, between groups.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from edt_server.core.admission import least, ranking
from edt_server.core.claim import Claim
from edt_server.core.divisor_rule import WeightedClaim, divide, worth
from edt_server.core.replan import add_up, weighted
from edt_server.core.tree import GroupNode, Holding, Tree, holdings, path


@dataclass(frozen=True, slots=True)
class Cut:
    """The point where the slots ended for one job. Counts are slots.

    `why` is one of these codes:

    - "met": the job has what it asks for.
    - "never": its floor is more than there could be for it.
    - "turn": not all floors fit, and others run first.
    - "order": the policy is strict, and others come first.
    - "share": a claim of another job was stronger.
    - "floors": others have their floors, or keep slots.
    - "borrow": a group has all it may have.
    - "lend": what is left is not lent.
    - "unit": less is left than it takes at once.
    - "slower": it was measured to get slower with more.

    Attributes:
        job, target, cap: the job, what it is entitled to, what it asks for.
        why: the code.
        level: the group or user that divided the slots there. "" at the root.
        claimant: the claimant there: the job, or its group or user.
        weight, held: of the claimant. Its claim is weight ÷ (held + unit ÷ 2).
        worth: the worth of that claim, by measured speed where that counts.
        rival: job, group or user that got the last slot before. "" when no claim decided.
        rival_weight, rival_held, rival_worth: of the claim that the rival won with.
        borrowed: group → the job's slots that this group owns. Only a group's last slots are borrowed ones.
    """

    job: str
    target: int
    cap: int
    why: str
    level: str = ""
    claimant: str = ""
    weight: int = 0
    held: int = 0
    unit: int = 1
    worth: Fraction = Fraction(0)
    rival: str = ""
    rival_weight: int = 0
    rival_held: int = 0
    rival_worth: Fraction = Fraction(0)
    borrowed: dict[str, int] | None = None


class Cuts:
    """The cuts of jobs, valid until the tree or the targets change. What several of them need is computed once."""

    def __init__(self, tree: Tree, targets: Mapping[str, int]) -> None:
        add_up(tree.root)
        self._tree, self._targets = tree, targets
        self._holdings: dict[str, Holding] | None = None
        self._weakest: dict[GroupNode, list[_Winner]] = {}
        self._owned: dict[GroupNode, Mapping[str, int]] = {}
        self._last: dict[GroupNode, list[str]] = {}

    def of(self, claim: Claim) -> Cut:
        """Return the cut of a job. O(jobs of its leaf) for the first job there, then O(groups above it)."""
        tree, target = self._tree, self._targets[claim.job]
        leaf = tree.leaf(claim.group, claim.user)
        cut = Cut(claim.job, target, claim.cap, "met", borrowed=self._borrowed(leaf, claim))
        if target >= claim.cap:
            return cut
        mine = weighted(claim, leaf)
        if leaf.policy == "fairshare" and target >= mine.cap:
            return replace(cut, why="slower")
        if target == 0 and least(claim) > min(_ever(node) for node in path(leaf)):
            return replace(cut, why="never")
        if target == 0 and leaf.policy == "fairshare":
            return replace(cut, why="turn")
        if leaf.policy != "fairshare":
            before = self._before(leaf, claim)
            if before:
                return replace(cut, why="order", level=leaf.name, rival=before)
            if target == 0 and leaf.excluded:
                return replace(cut, why="turn")
        return self._compared_upwards(cut, leaf, claim, mine)

    def _compared_upwards(self, cut: Cut, leaf: GroupNode, claim: Claim, mine: WeightedClaim) -> Cut:
        """Find where the claim lost: in its leaf, or where a group above it lost among its siblings."""
        found = self._compared(cut, leaf, mine)
        if found is not None:
            return found
        node = leaf
        while node.parent is not None:
            # By its budget: a group below may keep slots of it that it does not use.
            if node.borrow is not None and node.budget >= node.most and node.most < node.demand:
                return replace(cut, why="borrow", level=node.name)
            found = self._compared(replace(cut, job=node.name), node.parent, node.weighted())
            if found is not None:
                return replace(found, job=claim.job)
            node = node.parent
        if self._tree.root.used == self._tree.root.own:
            return replace(cut, why="floors")
        return replace(cut, why="unit" if claim.unit > 1 else "lend")

    def _before(self, leaf: GroupNode, claim: Claim) -> str:
        """Return the last other job of a strict leaf that gets slots, the first in line while none does, or ""."""
        last = self._last.get(leaf)
        if last is None:
            order = ranking(leaf)
            # Two of them, because the last may be the job itself.
            last = [each.job for each in order.claims() if self._targets[each.job]][-2:]
            first = order.first(self._tree.root.own) if not last else None
            last = self._last[leaf] = last if first is None else [first.job]
        return next((job for job in reversed(last) if job != claim.job), "")

    def _borrowed(self, leaf: GroupNode, claim: Claim) -> dict[str, int]:
        """Return the job's slots that other groups own, by group: those it has only because its group has borrowed."""
        target = self._targets[claim.job]
        if not target:
            return {}
        if self._holdings is None:
            self._holdings = holdings(self._tree)
        lenders = self._holdings[self._tree.groups[claim.group].name].lenders
        total = sum(lenders.values())
        if not total:
            return {}
        if leaf not in self._owned:
            self._owned[leaf] = self._without(leaf, max(0, leaf.used - total))
        mine: dict[str, int] = {}
        left = target - self._owned[leaf].get(claim.job, 0)
        for name, slots in lenders.items():
            taken = min(left, slots)
            left -= taken
            if taken:
                mine[name] = taken
        return mine

    def _without(self, leaf: GroupNode, slots: int) -> dict[str, int]:
        """Return what the jobs of a leaf would have of fewer slots."""
        targets = self._targets
        if leaf.policy != "fairshare":
            shares = {}
            for each in ranking(leaf).claims():
                shares[each.job] = max(0, min(slots, targets[each.job]))
                slots -= targets[each.job]
            return shares
        running = [each for each in leaf.claims.values() if targets[each.job]]
        found = divide(slots, [weighted(each, leaf) for each in running])
        return dict(zip((each.job for each in running), found, strict=True))

    def _compared(self, cut: Cut, level: GroupNode, me: WeightedClaim) -> Cut | None:
        """Compare with the weakest sibling that still got slots, None when all siblings have only their floors."""
        rival = next((each for each in self._two_weakest(level) if each.name != cut.job), None)
        if rival is None:
            return None
        held = self._targets[cut.job] if not level.children else level.children[cut.job].budget
        return replace(
            cut,
            why="share",
            level=level.name,
            claimant=cut.job,
            weight=me.weight,
            held=held - me.owned,
            unit=me.unit,
            worth=_exactly(me, held),
            rival=rival.name,
            rival_weight=rival.claim.weight,
            rival_held=rival.held - rival.claim.owned,
            rival_worth=_exactly(rival.claim, rival.held),
        )

    def _two_weakest(self, level: GroupNode) -> list[_Winner]:
        found = self._weakest.get(level)
        if found is None:
            if level.children:
                rows = [(name, child.weighted(), child.budget) for name, child in level.children.items()]
            else:
                rows = [(c.job, weighted(c, level), self._targets[c.job]) for c in level.claims.values()]
            winners = (_Winner(name, claim, got - claim.unit) for name, claim, got in rows if got > claim.floor)
            # Two of them, because the weakest may be the job's own claim.
            found = self._weakest[level] = heapq.nsmallest(2, winners, key=_Winner.strength)
        return found


@dataclass(frozen=True, slots=True)
class _Winner:
    """A claim that got slots, and what it held before the last one or the last unit."""

    name: str
    claim: WeightedClaim
    held: int

    def strength(self) -> tuple[int, int, int]:
        return worth(self.claim, self.held, 64), self.claim.weight, -self.claim.order


def _ever(node: GroupNode) -> int:
    """Return the most that a node could have if it alone asked."""
    if node.parent is None or node.borrow is None:
        return node.own if node.parent is None else 1 << 62
    return node.own + node.borrow


def _exactly(claim: WeightedClaim, held: int) -> Fraction:
    # Exact, because the sentence names a tie: rounding could hide a tie or invent one.
    if claim.speedup is not None:
        return Fraction(worth(claim, held, 0))
    return Fraction(2 * claim.weight, 2 * (held - claim.owned) + claim.unit)
