"""All targets from nothing: who may run, then down the tree, at every node the same divisor rule.

First what each child has before anything is weighed, its own slots in use and the floors below it; then the rest by
share, each child up to what it may have. Composed of rules that never move anybody the wrong way, so the whole never
does. Slots that units or floors leave over in one leaf are offered again to the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from edt_server.core.admission import admit, by_policy, least, useful
from edt_server.core.claim import Claim
from edt_server.core.speedup import speedup
from edt_server.core.tree import Node, Tree
from edt_server.core.webster import Claim as Weighted
from edt_server.core.webster import divide


def replan(tree: Tree) -> tuple[dict[str, int], bool]:
    """The target of every job that asks for something, 0 for those that wait; and whether it can be kept up to date.

    It can when every floor fits and nothing was left over. Fills in `budget` and `used`.
    """
    leaves = list(tree.leaves())
    admitted, plain = admit(tree, leaves)
    running = {id(leaf): [c for c in leaf.claims.values() if c.order in admitted] for leaf in leaves}
    targets = {claim.job: 0 for leaf in leaves for claim in leaf.claims.values()}
    while True:
        give_down(tree.root, tree.root.own)
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
    return targets, plain


def give_down(node: Node, budget: int) -> None:
    """Divide a budget among the nodes below."""
    node.budget = budget
    node.division = None
    if node.children:
        children = list(node.children.values())
        for child, slots in zip(children, divide_node(node, budget), strict=True):
            give_down(child, slots)


def divide_node(node: Node, budget: int) -> tuple[int, ...]:
    """The budget of each child, in their order."""
    children = node.children.values()
    if node.bases_below <= budget:
        return divide(budget, [child.weighted() for child in children])
    # Jobs keep slots that owners want back: floors hold, owners have the rest in proportion.
    claims = [Weighted(max(1, child.own), child.floor, child.base, child.order) for child in children]
    return divide(budget, claims)


def share_out(leaf: Node, claims: Iterable[Claim]) -> dict[str, int]:
    """What each of the jobs of a leaf gets of its budget."""
    if leaf.policy == "fairshare":
        jobs = list(claims)
        shares = divide(min(leaf.budget, leaf.demand), [weighted(claim, leaf.aware) for claim in jobs])
        return {claim.job: share for claim, share in zip(jobs, shares, strict=True)}
    return in_turn(by_policy(leaf), leaf.budget)


def in_turn(claims: Iterable[Claim], budget: int) -> dict[str, int]:
    """Each job all that it asks for before the next one gets anything but what it keeps."""
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


def weighted(claim: Claim, aware: bool) -> Weighted:
    """A job's claim beside those of its leaf."""
    if not aware:
        return Weighted(claim.weight, least(claim), claim.cap, claim.order, unit=claim.unit)
    cap, table = useful(claim, aware), speedup(claim.speeds)
    return Weighted(claim.weight, least(claim), cap, claim.order, unit=claim.unit, speedup=table)


def add_up(node: Node) -> int:
    """Fill in `used` of the inner nodes from that of the leaves; that of the node itself."""
    if node.children:
        node.used = sum(add_up(child) for child in node.children.values())
    return node.used
