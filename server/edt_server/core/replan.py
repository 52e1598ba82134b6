"""Compute all targets from scratch: first which jobs may run, then the divisor rule at every node, down the tree.

Each child first has its own slots in use and the floors below it. The rest is divided by share, each child up to what
it may have. Every step is monotonic (one slot more shrinks no claim), so the whole is. Slots that units or floors leave
over in one leaf are offered to the others again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from edt_server.core.admission import admit, ask, least, ranking, useful
from edt_server.core.claim import Claim
from edt_server.core.divisor_rule import MOST_SLOTS, Columns, WeightedClaim, divide, divide_many
from edt_server.core.speedup import EACH_LIKE_THE_FIRST, speedup
from edt_server.core.tree import GroupNode, Tree

MANY = 1_000  # with fewer slots a heap is faster than arrays


@dataclass(frozen=True, slots=True)
class Replanned:
    """All targets, computed from scratch.

    Attributes:
        targets: the target of every job that asks for something, 0 for jobs that wait.
        admitted: arrival numbers of the jobs that can run, None when all can.
        plain: nothing was left over, so that they can be updated incrementally.
    """

    targets: dict[str, int]
    admitted: Collection[int] | None
    plain: bool


def replan(tree: Tree) -> Replanned:
    """Return the targets of all jobs. Leaves that are `excluded` need no floor.

    Fills in `budget` and `used`, and `excluded` where not all can run. The needs of the tree are then those of the
    jobs that can.
    """
    leaves = list(tree.leaves())
    for leaf in leaves:
        _ask(tree, leaf)
    if not tree.excess:
        targets: dict[str, int] = {}
        _give_down(tree)
        _share_out_all(leaves, targets)
        if all(leaf.used == min(leaf.budget, leaf.demand) for leaf in leaves):
            add_up(tree.root)
            return Replanned(targets, None, plain=True)
    return _with_leftovers(tree, leaves)


def _ask(tree: Tree, leaf: GroupNode) -> None:
    if leaf.columns is None and _fits_in(leaf):
        leaf.columns = _columns(leaf)
    if leaf.columns is None:
        ask(tree, leaf)
    else:
        tree.need(leaf, int(leaf.columns.floor.sum()), int(leaf.columns.cap.sum()))


def _fits_in(leaf: GroupNode) -> bool:
    # The arrays know neither measured speed nor strict order nor units.
    if leaf.aware or leaf.policy != "fairshare" or not leaf.claims:
        return False
    return all(claim.unit == 1 for claim in leaf.claims.values())


def _columns(leaf: GroupNode) -> Columns:
    claims = leaf.claims.values()
    rows = [(claim.weight, least(claim), claim.cap, claim.order, 0) for claim in claims]
    return Columns(*np.array(rows, dtype=np.int64).T.copy())


def _give_down(tree: Tree) -> None:
    """Give every node its budget, level by level."""
    tree.root.budget = tree.root.own
    level = [tree.root]
    while level:
        for node in level:
            node.division = None
        level = [node for node in level if node.children]
        below = [child for node in level for child in node.children.values()]
        # One call of numpy for a whole level: one per node would cost more than the heap that it replaces. It needs
        # floors that fit, which they do not where jobs keep slots of other groups.
        fit = all(node.bases_below <= node.budget for node in level)
        if level and fit and MANY <= tree.root.own < MOST_SLOTS:
            rows = [(child.share, child.base, child.most, child.order, child.reserve) for child in below]
            starts = np.cumsum([0] + [len(node.children) for node in level[:-1]])
            budgets = np.array([node.budget for node in level])
            shares = divide_many(budgets, starts, Columns(*np.array(rows, dtype=np.int64).T.copy())).tolist()
        else:
            shares = [share for node in level for share in _divide_node(node)]
        for child, slots in zip(below, shares, strict=True):
            child.budget = slots
        level = below


def _share_out_all(leaves: list[GroupNode], targets: dict[str, int]) -> None:
    """Divide the budgets of all leaves among their jobs."""
    slots = sum(leaf.budget for leaf in leaves)
    vectors = [leaf for leaf in leaves if leaf.columns is not None] if MANY <= slots < MOST_SLOTS else []
    for leaf in leaves:
        if not vectors or leaf.columns is None:
            shares = share_out(leaf, leaf.claims.values())
            leaf.used = sum(shares.values())
            targets |= shares
        else:
            leaf.used = min(leaf.budget, leaf.demand)
    if vectors:
        columns = [leaf.columns for leaf in vectors if leaf.columns is not None]
        names = ("weight", "floor", "cap", "order", "owned")
        together = Columns(*(np.concatenate([getattr(each, name) for each in columns]) for name in names))
        starts = np.cumsum([0] + [len(leaf.claims) for leaf in vectors[:-1]])
        shares_of_all = divide_many(np.array([leaf.budget for leaf in vectors]), starts, together).tolist()
        targets.update(zip(chain.from_iterable(leaf.claims for leaf in vectors), shares_of_all, strict=True))


def _with_leftovers(tree: Tree, leaves: list[GroupNode]) -> Replanned:
    """Replan where jobs have to wait, or units leave something over."""
    admitted, all_fit = admit(tree, leaves)
    running = {id(leaf): [c for c in leaf.claims.values() if c.order in admitted] for leaf in leaves}
    targets = {claim.job: 0 for leaf in leaves for claim in leaf.claims.values()}
    plain = not tree.excess
    while True:
        _give_down(tree)
        for leaf in leaves:
            shares = share_out(leaf, running[id(leaf)])
            leaf.used = sum(shares.values())
            targets |= shares
        over = [leaf for leaf in leaves if leaf.used < min(leaf.budget, leaf.demand)]
        if not over:
            break
        plain = False
        # One at a time, the lightest first: what it cannot use may complete a unit of a heavier one.
        last = min(over, key=lambda leaf: (leaf.share, -leaf.order))
        tree.need(last, min(last.floor, last.used), last.used)
    add_up(tree.root)
    return Replanned(targets, None if all_fit else admitted.keys(), plain)


def _divide_node(node: GroupNode) -> tuple[int, ...]:
    """Return the budget of each child, in their order."""
    children = node.children.values()
    if node.bases_below <= node.budget:
        return divide(node.budget, [child.weighted() for child in children])
    # Jobs keep slots that owners want back: floors hold, and owners share the rest in proportion.
    claims = [WeightedClaim(max(1, child.own), child.floor, child.base, child.order) for child in children]
    return divide(node.budget, claims)


def share_out(leaf: GroupNode, claims: Iterable[Claim]) -> dict[str, int]:
    """Return what each of the jobs of a leaf gets of its budget."""
    if leaf.policy == "fairshare":
        jobs = list(claims)
        shares = divide(min(leaf.budget, leaf.demand), [weighted(claim, leaf) for claim in jobs])
        return {claim.job: share for claim, share in zip(jobs, shares, strict=True)}
    return in_turn(ranking(leaf).claims(), leaf.budget)


def in_turn(claims: Iterable[Claim], budget: int) -> dict[str, int]:
    """Give each job all that it asks for before the next one gets more than it keeps."""
    claims = list(claims)
    left = max(0, budget - sum(min(claim.keep, claim.cap) for claim in claims))
    shares: dict[str, int] = {}
    for claim in claims:
        kept = min(claim.keep, claim.cap)
        more = min(left, claim.cap - kept) // claim.unit * claim.unit
        if kept + more < least(claim):
            more = 0
        shares[claim.job] = kept + more
        left -= more
    return shares


def weighted(claim: Claim, leaf: GroupNode) -> WeightedClaim:
    """Return a job's claim within its leaf, with single slots as units where the policy is strict."""
    if leaf.policy != "fairshare":
        weight = claim.weight if leaf.policy == "priority" else 1
        return WeightedClaim(weight, min(claim.keep, claim.cap), claim.cap, claim.order, speedup=EACH_LIKE_THE_FIRST)
    if not leaf.aware:
        return WeightedClaim(claim.weight, least(claim), claim.cap, claim.order, unit=claim.unit)
    cap, table = useful(claim, leaf.aware), speedup(claim.speeds)
    return WeightedClaim(claim.weight, least(claim), cap, claim.order, unit=claim.unit, speedup=table)


def add_up(node: GroupNode) -> int:
    """Fill in `used` of the inner nodes from the leaves, and return `used` of the node itself."""
    if node.children:
        node.used = sum(add_up(child) for child in node.children.values())
    return node.used
