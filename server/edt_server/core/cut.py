"""What keeps a job from one slot more: where its next claim lost, and to whose. Numbers, for others to put in words.

Under a divisor rule the answer is one comparison: the job's claim to its next slot, and the weakest claim of another
that still beat it. Where the job's own group has no such rival the comparison is one level up, between groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from edt_server.core.admission import by_policy, least
from edt_server.core.claim import Claim
from edt_server.core.lending import holdings
from edt_server.core.replan import weighted
from edt_server.core.tree import Node, Tree, path
from edt_server.core.webster import Claim as Weighted
from edt_server.core.webster import divide, worth


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the slots ended for one job. Counts are slots.

    Attributes:
        job, target, cap: it, what it is entitled to, what it asks for.
        why: "met" it has what it asks for; "never" its floor is more than there could be for it; "turn" not all floors
            fit, and others run first; "order" the policy is strict, and others come first; "share" a claim of another
            was stronger; "floors" others have what they cannot run without, or keep; "borrow" a group has all it may
            have; "lend" what is left is not lent; "unit" less is left than it takes at once; "slower" it was measured
            to get slower with more.
        level: the group, or user, among whose children it was decided; "" at the root.
        claimant: who made the claim there: the job, or the group or user that it is in.
        weight, held: of the claimant: its claim is weight ÷ (held + unit ÷ 2); `worth` is that, or by measured speed.
        rival: job, group or user that got the last slot before; "" when nobody's claim decided.
        rival_weight, rival_held, rival_worth: of the claim that the rival won with.
        borrowed: group → slots of the job's that it owns; only a group's last slots are borrowed ones.
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


def cut_of(tree: Tree, leaf: Node, claim: Claim, targets: Mapping[str, int]) -> Cut:
    """The cut of one job of a leaf, after everything was divided. O(jobs of the leaf)."""
    target = targets[claim.job]
    cut = Cut(claim.job, target, claim.cap, "met", borrowed=borrowed(tree, leaf, claim, targets))
    if target >= claim.cap:
        return cut
    mine = weighted(claim, leaf.aware)
    if leaf.policy == "fairshare" and target >= mine.cap:
        return replace(cut, why="slower")
    if target == 0 and least(claim) > min(_ever(node) for node in path(leaf)):
        return replace(cut, why="never")
    if target == 0 and leaf.policy == "fairshare":
        return replace(cut, why="turn")
    if leaf.policy != "fairshare":
        before = [each.job for each in by_policy(leaf) if targets[each.job] and each.job != claim.job]
        if before:
            return replace(cut, why="order", level=leaf.name, rival=before[-1])
    names = [each.job for each in leaf.claims.values()]
    found = _compared(cut, leaf, names, [weighted(c, leaf.aware) for c in leaf.claims.values()], targets)
    if found is not None:
        return found
    node = leaf
    while node.parent is not None:
        if node.borrow is not None and node.used >= node.most and node.most < node.demand:
            return replace(cut, why="borrow", level=node.name)
        children = node.parent.children
        budgets = {name: child.budget for name, child in children.items()}
        claims = [child.weighted() for child in children.values()]
        found = _compared(replace(cut, job=node.name), node.parent, list(children), claims, budgets)
        if found is not None:
            return replace(found, job=claim.job)
        node = node.parent
    if tree.root.used == tree.root.own:
        return replace(cut, why="floors")
    return replace(cut, why="unit" if claim.unit > 1 else "lend")


def borrowed(tree: Tree, leaf: Node, claim: Claim, targets: Mapping[str, int]) -> dict[str, int]:
    """Slots of the job that other groups own, by group: those that it has only because its group has borrowed."""
    if not targets[claim.job]:
        return {}
    group = tree.groups[claim.group]
    lenders = holdings(tree)[group.name].lenders
    total = sum(lenders.values())
    if not total:
        return {}
    owned = _without(leaf, max(0, leaf.used - total), claim, targets)
    mine: dict[str, int] = {}
    left = targets[claim.job] - owned
    for name, slots in lenders.items():
        taken = min(left, slots)
        left -= taken
        if taken:
            mine[name] = taken
    return mine


def _without(leaf: Node, slots: int, claim: Claim, targets: Mapping[str, int]) -> int:
    """What the job would have of fewer slots of its leaf."""
    running = [each for each in leaf.claims.values() if targets[each.job]]
    if leaf.policy != "fairshare":
        for each in by_policy(leaf):
            if each.job == claim.job:
                return max(0, min(slots, targets[each.job]))
            slots -= targets[each.job]
    shares = divide(slots, [weighted(each, leaf.aware) for each in running])
    return dict(zip((each.job for each in running), shares, strict=True))[claim.job]


def _ever(node: Node) -> int:
    """The most a node could have if it alone asked."""
    if node.parent is None or node.borrow is None:
        return node.own if node.parent is None else 1 << 62
    return node.own + node.borrow


def _compared(
    cut: Cut, level: Node, names: Sequence[str], claims: Sequence[Weighted], shares: Mapping[str, int]
) -> Cut | None:
    """The cut with the weakest claim that still got slots, among siblings; None when all they have are floors."""
    bits = 64
    by_name = dict(zip(names, claims, strict=True))
    me = by_name[cut.job]
    rivals = [
        (worth(each, shares[name] - each.unit, bits), each.weight, -each.order, name)
        for name, each in by_name.items()
        if name != cut.job and shares[name] > each.floor
    ]
    if not rivals:
        return None
    rival = by_name[min(rivals)[3]]
    name = min(rivals)[3]
    return replace(
        cut,
        why="share",
        level=level.name,
        claimant=cut.job,
        weight=me.weight,
        held=shares[cut.job] - me.owned,
        unit=me.unit,
        worth=_exactly(me, shares[cut.job]),
        rival=name,
        rival_weight=rival.weight,
        rival_held=shares[name] - rival.unit - rival.owned,
        rival_worth=_exactly(rival, shares[name] - rival.unit),
    )


def _exactly(claim: Weighted, held: int) -> Fraction:
    if claim.speedup is not None:
        return Fraction(worth(claim, held, 0))
    return Fraction(2 * claim.weight, 2 * (held - claim.owned) + claim.unit)
