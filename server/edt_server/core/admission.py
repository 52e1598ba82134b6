"""Which jobs may run when not all can have the least they need: by turn, as long as they fit.

What a group owns is there for its jobs first, and its limit on borrowing holds; within that, lower turns go first, and
a job that does not fit is passed over. With floors of one slot, one job more displaces at most one.
"""

from __future__ import annotations

from collections.abc import Iterable

from edt_server.core.claim import Claim
from edt_server.core.speedup import speedup
from edt_server.core.tree import Node, Tree


def least(claim: Claim) -> int:
    """Slots it needs or may keep, whichever is more, of those it asks for."""
    return min(max(claim.floor, claim.keep), claim.cap)


def useful(claim: Claim, aware: bool) -> int:
    """Its cap; where speed counts, not more than the size beyond which it was measured to get slower."""
    most = speedup(claim.speeds).most if aware else None
    if most is None:
        return claim.cap
    return min(claim.cap, max(least(claim), most // claim.unit * claim.unit))


def by_policy(node: Node) -> list[Claim]:
    """Jobs of a leaf with a strict policy, first served first."""
    if node.policy == "priority":
        return sorted(node.claims.values(), key=lambda claim: (-claim.weight, claim.order))
    return sorted(node.claims.values(), key=lambda claim: claim.order)


def strict_floor(node: Node, slots: int) -> int:
    """What a leaf with a strict policy needs: what its jobs keep, and the floor of the first that can run at all."""
    kept = sum(min(claim.keep, claim.cap) for claim in node.claims.values())
    for claim in by_policy(node):
        if least(claim) <= slots:
            return kept + least(claim) - min(claim.keep, claim.cap)
    return kept


def ask(tree: Tree, leaf: Node) -> None:
    """Let a leaf ask for all its jobs."""
    fair = leaf.policy == "fairshare"
    floor = sum(map(least, leaf.claims.values())) if fair else strict_floor(leaf, tree.root.own)
    tree.need(leaf, floor, sum(useful(claim, leaf.aware) for claim in leaf.claims.values()))


def admit(tree: Tree, leaves: Iterable[Node]) -> tuple[dict[int, Claim], bool]:
    """The jobs that may run, by order of arrival, and whether all floors fit.

    Afterwards the needs of the tree are those of these jobs.

    Leaves with a strict policy choose by it, not by turn: all their jobs are admitted, and only the first can count on
    its floor.
    """
    leaves = list(leaves)
    for leaf in leaves:
        ask(tree, leaf)
    everyone = {claim.order: claim for leaf in leaves for claim in leaf.claims.values()}
    if not tree.excess:
        return everyone, True
    strict = [leaf for leaf in leaves if leaf.policy != "fairshare"]
    admitted = {claim.order: claim for leaf in strict for claim in leaf.claims.values()}
    waiting = _by_turn(tree, leaves)
    for leaf in leaves:
        tree.need(leaf, 0, leaf.demand)
    waiting = _let_in(tree, waiting, admitted, grow=False)
    if waiting and any(least(claim) > 1 for claim in everyone.values()):
        # Who waits for many slots does not hold back what its group could lend meanwhile.
        _forget_the_demand_of(tree, waiting)
        waiting = _let_in(tree, waiting, admitted, grow=True)
    else:
        _forget_the_demand_of(tree, waiting)
    return admitted, False


Candidate = tuple[Node, int, Claim | None]  # of a leaf, its floor; the job, None for the first of a strict leaf


def _by_turn(tree: Tree, leaves: Iterable[Node]) -> list[Candidate]:
    found: list[tuple[tuple[int, float, int], Candidate]] = []
    for number, leaf in enumerate(leaves):
        if leaf.policy == "fairshare":
            for claim in leaf.claims.values():
                found.append(((0 if claim.keep else 2, claim.turn, claim.order), (leaf, least(claim), claim)))
        elif leaf.claims:
            # Before all turns: were its turn that of one of its jobs, it would lose its place when that job goes.
            kept = sum(min(claim.keep, claim.cap) for claim in leaf.claims.values())
            if kept:
                found.append(((0, 0, number), (leaf, kept, None)))
            found.append(((1, 0, number), (leaf, strict_floor(leaf, tree.root.own) - kept, None)))
    return [candidate for _, candidate in sorted(found, key=lambda each: each[0])]


def _let_in(tree: Tree, waiting: list[Candidate], admitted: dict[int, Claim], *, grow: bool) -> list[Candidate]:
    """Admit who fits; return who does not. `grow`: the leaf's demand does not yet count those who wait."""
    still: list[Candidate] = []
    for leaf, floor, claim in waiting:
        before, was, demand = tree.excess, leaf.floor, leaf.demand
        tree.need(leaf, was + floor, demand + (useful(claim, leaf.aware) if grow and claim else 0))
        kept = claim.keep > 0 if claim is not None else was == 0 and any(c.keep for c in leaf.claims.values())
        if tree.root.floor > tree.root.own or (tree.excess > before and not kept):
            tree.need(leaf, was, demand)
            still.append((leaf, floor, claim))
        elif claim is not None:
            admitted[claim.order] = claim
    return still


def _forget_the_demand_of(tree: Tree, waiting: Iterable[Candidate]) -> None:
    for leaf, _, claim in waiting:
        if claim is not None:
            tree.need(leaf, leaf.floor, leaf.demand - useful(claim, leaf.aware))
