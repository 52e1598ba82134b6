"""Targets kept up to date: only the nodes between a changed job and the root, and only as far as numbers change.

Holds while every floor fits and every unit is one slot: then everybody is admitted, nothing is left over, and each node
is a `Division` that moves slots one by one to where working it out from nothing would put them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edt_server.core.admission import by_policy, least, strict_floor, useful
from edt_server.core.claim import Claim
from edt_server.core.division import Division
from edt_server.core.replan import in_turn, weighted
from edt_server.core.tree import Node, Tree


def odd(tree: Tree, claim: Claim) -> bool:
    """Whether a job like this can leave something over, so that all has to be worked out from nothing."""
    if claim.cap == 0:
        return False
    return claim.unit > 1 or (claim.floor > 1 and tree.groups[claim.group].policy != "fairshare")


def exchange(tree: Tree, old: Claim | None, new: Claim | None) -> None:
    """Put a claim in place of the job's former one."""
    if old is not None and old.cap > 0:
        leaf = tree.leaf(old.group, old.user)
        leaf.columns = None
        leaf.claims.pop(old.job, None)
    if new is not None and new.cap > 0:
        leaf = tree.leaf(new.group, new.user)
        leaf.columns = None
        leaf.claims[new.job] = new


def keep_up(
    tree: Tree,
    changed: Mapping[str, Claim | None],
    claims: Mapping[str, Claim],
    targets: Mapping[str, int],
) -> dict[str, int] | None:
    """The targets that are others now that the `changed` jobs, which had these claims, have those in `claims`.

    The claims have been exchanged in the tree. None when it takes everything from nothing.
    """
    leaves = _ask(tree, changed, claims)
    if tree.excess:
        return None
    visit: dict[int, set[str]] = {}
    for leaf, jobs in leaves.values():
        if leaf.division is not None:
            _exchange_in(leaf, leaf.division, jobs)
        _need_above(leaf, visit)
    moved: dict[str, int] = {}
    _settle(tree.root, visit, targets, moved)
    for job in changed:
        claim = claims.get(job)
        if claim is None:
            moved.pop(job, None)
        elif claim.cap == 0:
            moved[job] = 0
        else:
            leaf = tree.leaf(claim.group, claim.user)
            if leaf.division is not None:
                moved[job] = leaf.division.held(job)
    return {job: target for job, target in moved.items() if targets.get(job, 0) != target}


Touched = dict[int, tuple[Node, list[str]]]  # by the id of a leaf: it, and its jobs that changed


def _ask(tree: Tree, changed: Mapping[str, Claim | None], claims: Mapping[str, Claim]) -> Touched:
    """Bring the needs of the tree up to date."""
    leaves: Touched = {}
    needs: dict[int, list[int]] = {}
    for job, old in changed.items():
        for claim, sign in ((old, -1), (claims.get(job), 1)):
            if claim is None or claim.cap == 0:
                continue
            leaf = tree.leaf(claim.group, claim.user)
            if id(leaf) not in leaves:
                leaves[id(leaf)] = leaf, []
                needs[id(leaf)] = [leaf.floor, leaf.demand]
            jobs = leaves[id(leaf)][1]
            if not jobs or jobs[-1] != job:
                jobs.append(job)
            need = needs[id(leaf)]
            need[0] += sign * least(claim)
            need[1] += sign * useful(claim, leaf.aware)
    for leaf, _ in leaves.values():
        floor, demand = needs[id(leaf)]
        if leaf.policy != "fairshare":
            floor = strict_floor(leaf, tree.root.own)
        if floor != leaf.floor or demand != leaf.demand:
            tree.need(leaf, floor, demand)
    return leaves


def _exchange_in(leaf: Node, division: Division, jobs: Iterable[str]) -> None:
    for job in jobs:
        claim = leaf.claims.get(job)
        if claim is not None:
            division.put(job, weighted(claim, leaf.aware))
        elif job in division:
            division.remove(job)


def _need_above(leaf: Node, visit: dict[int, set[str]]) -> None:
    """Tell every division between the leaf and the root what its child on the way needs now."""
    node = leaf
    while node.parent is not None:
        parent = node.parent
        visit.setdefault(id(parent), set()).add(node.name)
        if parent.division is not None:
            parent.division.bound(node.name, node.base, node.most, node.reserve)
        node = parent


def _settle(node: Node, visit: Mapping[int, set[str]], targets: Mapping[str, int], moved: dict[str, int]) -> None:
    if not node.children:
        node.used = min(node.budget, node.demand)
        if node.policy != "fairshare":
            moved.update(in_turn(by_policy(node), node.budget))
            return
        if node.division is None:
            claims = node.claims.values()
            node.division = Division([(c.job, weighted(c, node.aware), targets.get(c.job, 0)) for c in claims])
        moved.update(node.division.settle(node.used))
        return
    if node.division is None:
        node.division = Division([(name, child.weighted(), child.budget) for name, child in node.children.items()])
    budgets = node.division.settle(node.budget)
    for name, budget in budgets.items():
        node.children[name].budget = budget
    for name in visit.get(id(node), set()).union(budgets):
        _settle(node.children[name], visit, targets, moved)
