"""Targets kept up to date: only the nodes between a changed job and the root, and only as far as numbers change.

Of jobs whose floors all fit, who else asks being kept outside (`crowd.py`), and whose units are one slot: then nothing
is left over, and each node is a `Division` that moves slots one by one to where working it out from nothing would put
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from edt_server.core.admission import least, strict_floor, useful
from edt_server.core.claim import Claim
from edt_server.core.division import Division
from edt_server.core.replan import weighted
from edt_server.core.tree import Node, Tree


def odd(tree: Tree, claim: Claim) -> bool:
    """Whether a job like this can leave something over, so that all has to be worked out from nothing."""
    if claim.cap == 0:
        return False
    return claim.unit > 1 or (claim.floor > 1 and tree.groups[claim.group].policy != "fairshare")


def exchange(tree: Tree, old: Claim | None, new: Claim | None) -> None:
    """Put a claim in place of the job's former one."""
    if old is not None and old.cap > 0:
        _take_out(tree.leaf(old.group, old.user), old)
    if new is not None and new.cap > 0:
        _put_in(tree.leaf(new.group, new.user), new)


def _take_out(leaf: Node, claim: Claim) -> None:
    was = leaf.claims.pop(claim.job, None)
    leaf.columns = None
    if was is not None and leaf.ranking is not None:
        leaf.ranking.drop(was)


def _put_in(leaf: Node, claim: Claim) -> None:
    if leaf.ranking is not None:
        was = leaf.claims.get(claim.job)
        if was is not None:
            leaf.ranking.drop(was)
        leaf.ranking.put(claim)
    leaf.claims[claim.job] = claim
    leaf.columns = None


class _Asked:
    """A leaf that is to be looked at: the jobs in it that changed, and what all of its jobs need now."""

    __slots__ = ("demand", "floor", "jobs", "leaf")

    def __init__(self, leaf: Node) -> None:
        self.leaf = leaf
        self.jobs: dict[str, None] = {}
        self.floor, self.demand = leaf.floor, leaf.demand


class Upkeep:
    """What one `settle` changes: jobs are exchanged, then everything below the root is brought up to date.

    Args:
        tree: of the claims of those that run.
        targets: of all jobs, as they were.
    """

    def __init__(self, tree: Tree, targets: Mapping[str, int]) -> None:
        self._tree, self._targets = tree, targets
        self._leaves: dict[Node, _Asked] = {}
        self._now: dict[str, Claim | None] = {}

    def ask(self, changed: Mapping[str, Claim | None], claims: Mapping[str, Claim]) -> bool:
        """Exchange the claims of these jobs for those in `claims`, in tree and needs; whether all floors fit."""
        tree = self._tree
        for job, old in changed.items():
            new = self._now[job] = claims.get(job)
            if old is not None and old.cap > 0:
                leaf = tree.leaf(old.group, old.user)
                _take_out(leaf, old)
                asked = self.touch(leaf)
                asked.jobs[job] = None
                asked.floor -= least(old)
                asked.demand -= useful(old, leaf.aware)
            if new is not None and new.cap > 0:
                leaf = tree.leaf(new.group, new.user)
                _put_in(leaf, new)
                asked = self.touch(leaf)
                asked.jobs[job] = None
                asked.floor += least(new)
                asked.demand += useful(new, leaf.aware)
        for asked in self._leaves.values():
            self._need(asked.leaf, asked.floor, asked.demand)
        return not tree.excess

    def shut(self, leaf: Node, shut: bool) -> None:
        """Whether a leaf with a strict policy can count on the floor of its first job."""
        if leaf.shut != shut:
            leaf.shut = shut
            self.touch(leaf)
            self._need(leaf, leaf.floor, leaf.demand)

    def touch(self, leaf: Node) -> _Asked:
        """The division of this leaf is to be looked at."""
        asked = self._leaves.get(leaf)
        if asked is None:
            asked = self._leaves[leaf] = _Asked(leaf)
        return asked

    def divide(self) -> dict[str, int]:
        """The targets that are others now, those of removed jobs left out."""
        visit: dict[int, dict[str, None]] = {}
        for leaf, asked in self._leaves.items():
            if leaf.division is not None:
                _exchange_in(leaf, leaf.division, asked.jobs)
            _need_above(leaf, visit)
        moved: dict[str, int] = {}
        targets = self._targets
        _settle(self._tree.root, visit, targets, moved)
        for job, claim in self._now.items():  # which its division knows from now on, or not any more
            target = self._target(job, claim)
            if targets.get(job, target) != target:
                moved[job] = target
            else:
                moved.pop(job, None)
        return moved

    def _target(self, job: str, claim: Claim | None) -> int:
        """What the job is entitled to after the division."""
        if claim is None or claim.cap == 0:
            return 0
        division = self._tree.leaf(claim.group, claim.user).division
        assert division is not None, "a leaf that was asked is divided"
        return division.held(job)

    def _need(self, leaf: Node, floor: int, demand: int) -> None:
        if leaf.policy != "fairshare":
            floor = strict_floor(leaf, self._tree.root.own)
        if floor != leaf.floor or demand != leaf.demand:
            self._tree.need(leaf, floor, demand)


def _exchange_in(leaf: Node, division: Division, jobs: Iterable[str]) -> None:
    for job in jobs:
        claim = leaf.claims.get(job)
        if claim is not None:
            division.put(job, weighted(claim, leaf))
        elif job in division:
            division.remove(job)


def _need_above(leaf: Node, visit: dict[int, dict[str, None]]) -> None:
    """Tell every division between the leaf and the root what its child on the way needs now."""
    node = leaf
    while node.parent is not None:
        parent = node.parent
        below = visit.get(id(parent))
        if below is None:
            visit[id(parent)] = {node.name: None}
        else:
            below[node.name] = None
        if parent.division is not None:
            parent.division.bound(node.name, node.base, node.most, node.reserve)
        node = parent


def _settle(
    node: Node, visit: Mapping[int, Collection[str]], targets: Mapping[str, int], moved: dict[str, int]
) -> None:
    if not node.children:
        node.used = node.budget if node.budget < node.demand else node.demand
        if node.division is None:
            claims = node.claims.values()
            node.division = Division([(c.job, weighted(c, node), targets.get(c.job, 0)) for c in claims])
        moved.update(node.division.settle(node.used))
        return
    if node.division is None:
        node.division = Division([(name, child.weighted(), child.budget) for name, child in node.children.items()])
    budgets = node.division.settle(node.budget)
    below = visit.get(id(node), ())
    for name, budget in budgets.items():
        node.children[name].budget = budget
        if name not in below:
            _settle(node.children[name], visit, targets, moved)
    for name in below:
        _settle(node.children[name], visit, targets, moved)
