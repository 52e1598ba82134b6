"""The rule: how many slots each job of one resource group is entitled to. A function of groups, slots and claims only.

Down the tree of instance groups every node divides what it has by Webster's rule, after what each child owns and uses
and after the floors below it; a leaf divides among its jobs by its policy. What was decided before does not count, so
nothing can oscillate: nobody grows when somebody arrives, nobody shrinks when somebody leaves, and the fewest slots
move. Floors and units above one slot bend this where one of them begins or ceases to fit, and only there.

While all floors fit and all units are one slot, an event costs what moves (`upkeep`); else, and when slots or groups
change, everything is worked out from nothing (`replan`). Both give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.claim import Claim
from edt_server.core.cut import Cut, cut_of
from edt_server.core.lending import Holding, holdings
from edt_server.core.replan import add_up, replan
from edt_server.core.tree import Node, Tree
from edt_server.core.upkeep import exchange, keep_up, odd

__all__ = ["Claim", "Cut", "Holding", "Rule"]


class Rule:
    """The targets of all jobs of one resource group.

    Changes are collected by `put`, `remove`, `set_slots` and `set_groups`; `settle` works out what follows from them.
    What is read lies where the last `settle` left it.

    Args:
        groups: the instance groups over the resource group, parents and leaves, as the plan has checked them.
        slots: how many there are, ≥ 0.
    """

    def __init__(self, groups: Sequence[InstanceGroup], slots: int) -> None:
        self._claims: dict[str, Claim] = {}
        self._targets: dict[str, int] = {}
        self._tree = Tree(groups, slots)
        self._changed: dict[str, Claim | None] = {}  # job → its claim at the last settle
        self._whole = True  # everything is to be worked out from nothing
        self._odd = 0  # claims that keep the targets from being kept up to date
        self._kept = 0
        self._nothing_kept = False

    # --- changing it --------------------------------------------------------------------------------------------------

    def put(self, claim: Claim) -> None:
        """A job arrives, or asks for something else. KeyError when there is no such group."""
        self._tree.groups[claim.group]
        old = self._claims.get(claim.job)
        if claim.job not in self._changed:
            self._changed[claim.job] = old
        self._count(old, -1)
        self._count(claim, 1)
        self._claims[claim.job] = claim

    def remove(self, job: str) -> None:
        """A job is gone. KeyError when it was not there."""
        old = self._claims.pop(job)
        if job not in self._changed:
            self._changed[job] = old
        self._count(old, -1)

    def set_slots(self, slots: int) -> None:
        """There are so many slots now."""
        if slots != self._tree.root.own:
            self._tree.resize(slots)
            self._whole = True

    def set_groups(self, groups: Sequence[InstanceGroup]) -> None:
        """The plan is another one. KeyError, and nothing has changed, when a job is in a group that is not there."""
        tree = Tree(groups, self._tree.root.own)
        for claim in self._claims.values():
            tree.groups[claim.group]
        self._tree, self._whole = tree, True
        for claim in self._claims.values():
            exchange(tree, None, claim)
        self._changed = {job: self._claims.get(job) for job in self._changed}
        self._odd = sum(odd(tree, claim) for claim in self._claims.values())

    def settle(self) -> dict[str, int]:
        """The jobs whose target is another one than after the last time, and that target; without removed jobs."""
        changed, self._changed = self._changed, {}
        if not changed and not self._whole:
            return {}
        for job, old in changed.items():
            exchange(self._tree, old, self._claims.get(job))
            if job in self._claims:
                self._targets.setdefault(job, 0)
            else:
                self._targets.pop(job, None)
        self._keep_what_can_be_kept()
        if not (self._whole or self._odd):
            moved = keep_up(self._tree, changed, self._claims, self._targets)
            if moved is not None:
                self._targets.update(moved)
                return moved
        return self._from_nothing()

    def _from_nothing(self) -> dict[str, int]:
        before = self._targets
        targets, plain = replan(self._tree)
        if len(targets) != len(self._claims):
            targets = dict.fromkeys(self._claims, 0) | targets
        self._targets = targets
        self._whole = not plain
        return {job: target for job, target in targets.items() if before.get(job, 0) != target}

    def _count(self, claim: Claim | None, sign: int) -> None:
        if claim is not None:
            self._odd += sign * odd(self._tree, claim)
            self._kept += sign * min(claim.keep, claim.cap)

    def _keep_what_can_be_kept(self) -> None:
        """More is kept than there is when slots were lost: then nothing can be."""
        too_much = self._kept > self._tree.root.own
        if too_much or self._nothing_kept:
            for node in self._tree.leaves():
                node.columns = None
                for job in node.claims:
                    claim = self._claims.get(job, node.claims[job])
                    node.claims[job] = replace(claim, keep=0) if too_much else claim
            self._whole = True
        self._nothing_kept = too_much

    # --- reading it ---------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self._tree.root.own

    def target(self, job: str) -> int:
        """Slots the job is entitled to; 0 before the first `settle`. KeyError when it is not there."""
        return self._targets[job]

    def claim(self, job: str) -> Claim:
        """What the job asks for. KeyError when it is not there."""
        return self._claims[job]

    def cut(self, job: str) -> Cut:
        """What keeps the job from one slot more, in numbers. O(jobs of its group). KeyError when it is not there."""
        claim = self._claims[job]
        leaf = self._tree.leaf(claim.group, claim.user)
        add_up(self._tree.root)
        return cut_of(self._tree, leaf, claim, self._targets)

    def groups(self) -> dict[str, Holding]:
        """What each instance group has, owns, borrows and lends, by name in the order of the plan."""
        add_up(self._tree.root)
        return holdings(self._tree)

    def node(self, group: str) -> Node:
        """The node of a group, with all its numbers."""
        return self._tree.groups[group]
