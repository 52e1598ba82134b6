"""Decide which jobs may run when not all floors fit: by turn, as long as they fit. Computed from scratch.

What a group owns is for its own jobs first, and its limit on borrowing holds. Within that, lower turns go first, and a
job that does not fit is skipped. A leaf with a strict policy has one turn for all its jobs and needs the floor of its
first job. Its policy chooses which of its jobs run. With one-slot floors, one more job displaces at most one other, and
`incremental_admission.py` finds the same result incrementally.
"""

from __future__ import annotations

from collections.abc import Iterable

from edt_server.core.claim import Claim, Ranking
from edt_server.core.speedup import speedup
from edt_server.core.tree import GroupNode, Tree


def least(claim: Claim) -> int:
    """Return the slots the job needs or may keep, whichever is more, at most its cap."""
    needed = claim.floor if claim.floor > claim.keep else claim.keep
    return needed if needed < claim.cap else claim.cap


def useful(claim: Claim, aware: bool) -> int:
    """Return the job's cap, limited to the size beyond which it got slower where measured speed counts."""
    if not aware:
        return claim.cap
    most = speedup(claim.speeds).most
    if most is None:
        return claim.cap
    return min(claim.cap, max(least(claim), most // claim.unit * claim.unit))


def ranking(node: GroupNode) -> Ranking:
    """Return the jobs of a leaf with a strict policy, in the order they are served."""
    if node.ranking is None:
        node.ranking = Ranking(node.policy, node.claims.values())
    return node.ranking


def strict_floor(node: GroupNode, slots: int) -> int:
    """Return what a leaf with a strict policy needs: what its jobs keep, and the floor of its first job that can run.

    While the leaf is excluded, only the former counts.
    """
    order = ranking(node)
    first = None if node.excluded else order.first(slots)
    return order.kept + (least(first) - min(first.keep, first.cap) if first is not None else 0)


def ask(tree: Tree, leaf: GroupNode) -> None:
    """Set a leaf's needs to those of all its jobs."""
    fair = leaf.policy == "fairshare"
    floor = sum(map(least, leaf.claims.values())) if fair else strict_floor(leaf, tree.root.own)
    tree.need(leaf, floor, sum(useful(claim, leaf.aware) for claim in leaf.claims.values()))


def admit(tree: Tree, leaves: Iterable[GroupNode]) -> tuple[dict[int, Claim], bool]:
    """Return the jobs that may run, by arrival number, and whether all floors fit. The tree then has their needs.

    All jobs of a leaf with a strict policy are admitted, because the policy chooses among them. The leaf is `excluded`
    when not even its first job can count on its floor.
    """
    leaves = list(leaves)
    for leaf in leaves:
        leaf.excluded = False
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
    # Demand counts against what a group lends. A job that waits for many slots must not block lending until then.
    _forget_the_demand_of(tree, waiting)
    if any(floor > 1 for _, floor, _ in waiting):
        _let_in(tree, waiting, admitted, grow=True)
    return admitted, False


Candidate = tuple[GroupNode, int, Claim | None]  # leaf, floor, and job, None for the needs of a strict leaf
Key = tuple[int, float, int, tuple[int, str] | int]
KEPT, IN_TURN = 0, 1


def key_of_job(claim: Claim) -> Key:
    """Return the sort key of admission: kept slots first, then the turn, then strict leaves before jobs by arrival."""
    return KEPT if claim.keep else IN_TURN, claim.turn, 1, claim.order


def key_of_leaf(leaf: GroupNode) -> Key:
    """Return the same key for the first job of a leaf with a strict policy."""
    group = leaf.parent if leaf.parent is not None and leaf.parent.user_shares is not None else leaf
    return IN_TURN, leaf.turn, 0, (group.order, leaf.name)


def _by_turn(tree: Tree, leaves: Iterable[GroupNode]) -> list[Candidate]:
    found: list[tuple[Key, Candidate]] = []
    for leaf in leaves:
        if leaf.policy == "fairshare":
            found += [(key_of_job(claim), (leaf, least(claim), claim)) for claim in leaf.claims.values()]
        elif leaf.claims:
            kept = ranking(leaf).kept
            if kept:
                found.append(((KEPT, 0, *key_of_leaf(leaf)[2:]), (leaf, kept, None)))
            found.append((key_of_leaf(leaf), (leaf, strict_floor(leaf, tree.root.own) - kept, None)))
    return [candidate for _, candidate in sorted(found, key=lambda each: each[0])]


def _let_in(tree: Tree, waiting: list[Candidate], admitted: dict[int, Claim], *, grow: bool) -> list[Candidate]:
    """Admit the candidates that fit, and return the others. With `grow` no leaf's demand counts them yet."""
    still: list[Candidate] = []
    closed: set[tuple[int, int]] = set()  # leaves and floors that do not fit, and never will as more jobs are admitted
    for leaf, floor, claim in waiting:
        before, was, demand = tree.excess, leaf.floor, leaf.demand
        kept = claim.keep > 0 if claim is not None else was == 0 and ranking(leaf).kept > 0
        if not kept and not grow and (id(leaf), floor) in closed:
            still.append((leaf, floor, claim))
            continue
        tree.need(leaf, was + floor, demand + (useful(claim, leaf.aware) if grow and claim else 0))
        if tree.root.floor > tree.root.own or (tree.excess > before and not kept):
            # Skip the job and go on. If the loop stopped here, an arrival that fits nowhere would let others grow
            # (decision 013).
            tree.need(leaf, was, demand)
            still.append((leaf, floor, claim))
            closed.add((id(leaf), floor))
            leaf.excluded = leaf.excluded or (claim is None and not kept)
        elif claim is not None:
            admitted[claim.order] = claim
        elif not kept:
            leaf.excluded = False
    return still


def _forget_the_demand_of(tree: Tree, waiting: Iterable[Candidate]) -> None:
    less: dict[int, tuple[GroupNode, int]] = {}
    for leaf, _, claim in waiting:
        if claim is not None:
            less[id(leaf)] = leaf, less.get(id(leaf), (leaf, 0))[1] + useful(claim, leaf.aware)
    for leaf, demand in less.values():
        tree.need(leaf, leaf.floor, leaf.demand - demand)
