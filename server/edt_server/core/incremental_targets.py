"""Update targets incrementally: only the nodes between a changed job and the root, and only where numbers change.

All floors have to fit (`incremental_admission.py` keeps the other jobs out), and all units have to be one slot.
Then nothing is left over, and each node is a `Division` that moves slots one by one to where a replan would put them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from edt_server.core.admission import least, strict_floor, useful
from edt_server.core.claim import Claim
from edt_server.core.division import Division
from edt_server.core.replan import weighted
from edt_server.core.tree import GroupNode, Tree


def forces_replan(tree: Tree, claim: Claim) -> bool:
    """Return whether a job like this can leave slots over, so that only a replan finds the targets."""
    if claim.cap == 0:
        return False
    # A unit may not fit into the rest of a budget. Nor may the floor of a job in a strict leaf, which then gets nothing
    # (`replan.in_turn`).
    return claim.unit > 1 or (claim.floor > 1 and tree.groups[claim.group].policy != "fairshare")


def exchange(tree: Tree, old: Claim | None, new: Claim | None) -> None:
    """Replace the job's former claim in the tree."""
    for claim, move in ((old, _take_out), (new, _put_in)):
        if claim is not None and claim.cap > 0:
            move(tree.leaf(claim.group, claim.user), claim)


def _take_out(leaf: GroupNode, claim: Claim) -> None:
    was = leaf.claims.pop(claim.job, None)
    leaf.columns = None
    if was is not None and leaf.ranking is not None:
        leaf.ranking.drop(was)


def _put_in(leaf: GroupNode, claim: Claim) -> None:
    if leaf.ranking is not None:
        was = leaf.claims.get(claim.job)
        if was is not None:
            leaf.ranking.drop(was)
        leaf.ranking.put(claim)
    leaf.claims[claim.job] = claim
    leaf.columns = None


class _Asked:
    """A leaf to be updated: its changed jobs, and what all of its jobs need now."""

    __slots__ = ("demand", "floor", "jobs", "leaf")

    def __init__(self, leaf: GroupNode) -> None:
        self.leaf = leaf
        self.jobs: dict[str, None] = {}
        self.floor, self.demand = leaf.floor, leaf.demand


class IncrementalTargets:
    """The target changes of a single `settle`: claims are exchanged first, then the divisions below the root follow.

    The tree has the claims of the running jobs, and `targets` are those of all jobs before.
    """

    def __init__(self, tree: Tree, targets: Mapping[str, int]) -> None:
        self._tree, self._targets = tree, targets
        self._leaves: dict[GroupNode, _Asked] = {}
        self._now: dict[str, Claim | None] = {}

    def ask(self, changed: Mapping[str, Claim | None], claims: Mapping[str, Claim]) -> bool:
        """Exchange the claims of these jobs for their claims in `claims`, and return whether all floors fit."""
        tree = self._tree
        for job, old in changed.items():
            new = self._now[job] = claims.get(job)
            for claim, move, sign in ((old, _take_out, -1), (new, _put_in, 1)):
                if claim is not None and claim.cap > 0:
                    leaf = tree.leaf(claim.group, claim.user)
                    move(leaf, claim)
                    asked = self.touch(leaf)
                    asked.jobs[job] = None
                    asked.floor += sign * least(claim)
                    asked.demand += sign * useful(claim, leaf.aware)
        for asked in self._leaves.values():
            self._need(asked.leaf, asked.floor, asked.demand)
        return not tree.excess

    def exclude(self, leaf: GroupNode, excluded: bool) -> None:
        """Set whether the first job of a leaf with a strict policy has no floor to count on."""
        if leaf.excluded != excluded:
            leaf.excluded = excluded
            self.touch(leaf)
            self._need(leaf, leaf.floor, leaf.demand)

    def touch(self, leaf: GroupNode) -> _Asked:
        """Mark the division of this leaf for an update."""
        asked = self._leaves.get(leaf)
        if asked is None:
            asked = self._leaves[leaf] = _Asked(leaf)
        return asked

    def divide(self) -> dict[str, int]:
        """Return the targets that changed, without those of removed jobs."""
        visit: dict[int, dict[str, None]] = {}
        for leaf, asked in self._leaves.items():
            if leaf.division is not None:
                _exchange_in(leaf, leaf.division, asked.jobs)
            _need_above(leaf, visit)
        moved: dict[str, int] = {}
        targets = self._targets
        _settle(self._tree.root, visit, targets, moved)
        # A job that entered or left a leaf is new to one division and gone from another: what they report about it is
        # the difference to 0, not to its former target.
        for job, claim in self._now.items():
            target = self._target(job, claim)
            if targets.get(job, target) != target:
                moved[job] = target
            else:
                moved.pop(job, None)
        return moved

    def _target(self, job: str, claim: Claim | None) -> int:
        """Return what the job is entitled to after the division."""
        if claim is None or claim.cap == 0:
            return 0
        division = self._tree.leaf(claim.group, claim.user).division
        assert division is not None, "a touched leaf has a division"
        return division.held(job)

    def _need(self, leaf: GroupNode, floor: int, demand: int) -> None:
        if leaf.policy != "fairshare":
            floor = strict_floor(leaf, self._tree.root.own)
        if floor != leaf.floor or demand != leaf.demand:
            self._tree.need(leaf, floor, demand)


def _exchange_in(leaf: GroupNode, division: Division, jobs: Iterable[str]) -> None:
    for job in jobs:
        claim = leaf.claims.get(job)
        if claim is not None:
            division.put(job, weighted(claim, leaf))
        elif job in division:
            division.remove(job)


def _need_above(leaf: GroupNode, visit: dict[int, dict[str, None]]) -> None:
    """Pass the needs of the leaf to every division on the way to the root, and record the nodes to visit."""
    node = leaf
    while node.parent is not None:
        parent = node.parent
        visit.setdefault(id(parent), {})[node.name] = None
        if parent.division is not None:
            parent.division.bound(node.name, node.base, node.most, node.reserve)
        node = parent


def _settle(
    node: GroupNode, visit: Mapping[int, Collection[str]], targets: Mapping[str, int], moved: dict[str, int]
) -> None:
    if not node.children:
        # Right only because no unit or floor leaves slots over here: `forces_replan` keeps such jobs out.
        node.used = node.budget if node.budget < node.demand else node.demand
        if node.division is None:
            claims = node.claims.values()
            # It starts from the present targets, so that it reports only what moves.
            node.division = Division([(c.job, weighted(c, node), targets.get(c.job, 0)) for c in claims])
        moved.update(node.division.settle(node.used))
        return
    if node.division is None:
        node.division = Division([(name, child.weighted(), child.budget) for name, child in node.children.items()])
    budgets = node.division.settle(node.budget)
    # Children with another budget, and children with a change below them. All others keep their numbers.
    below = visit.get(id(node), ())
    for name, budget in budgets.items():
        node.children[name].budget = budget
        if name not in below:
            _settle(node.children[name], visit, targets, moved)
    for name in below:
        _settle(node.children[name], visit, targets, moved)
