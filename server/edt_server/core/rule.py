"""The rule: how many slots each job of one resource group is entitled to. A function of groups, slots and claims only.

Down the tree of instance groups every node divides what it has by Webster's rule, after what each child owns and uses
and after the floors below it; a leaf divides among its jobs by its policy. What was decided before does not count, so
nothing can oscillate: nobody grows when somebody arrives, nobody shrinks when somebody leaves, and the fewest slots
move. Floors and units above one slot bend this where one of them begins or ceases to fit, and only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.claim import Claim
from edt_server.core.cut import Cut, cut_of
from edt_server.core.lending import Holding, holdings
from edt_server.core.replan import replan
from edt_server.core.tree import Node, Tree

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
        self._groups = tuple(groups)
        self._slots = slots
        self._claims: dict[str, Claim] = {}
        self._targets: dict[str, int] = {}
        self._tree = Tree(self._groups, slots)
        self._stale = False

    # --- changing it --------------------------------------------------------------------------------------------------

    def put(self, claim: Claim) -> None:
        """A job arrives, or asks for something else. KeyError when there is no such group."""
        if claim.group not in self._tree.groups:
            raise KeyError(claim.group)
        self._claims[claim.job] = claim
        self._stale = True

    def remove(self, job: str) -> None:
        """A job is gone. KeyError when it was not there."""
        del self._claims[job]
        self._stale = True

    def set_slots(self, slots: int) -> None:
        """There are so many slots now."""
        self._slots = slots
        self._stale = True

    def set_groups(self, groups: Sequence[InstanceGroup]) -> None:
        """The plan is another one. KeyError, and nothing has changed, when a job is in a group that is not there."""
        names = {group.name for group in groups}
        for claim in self._claims.values():
            if claim.group not in names:
                raise KeyError(claim.group)
        self._groups = tuple(groups)
        self._stale = True

    def settle(self) -> dict[str, int]:
        """The jobs whose target is another one than after the last time, and that target; without removed jobs."""
        if not self._stale:
            return {}
        self._stale = False
        before = self._targets
        self._tree = Tree(self._groups, self._slots)
        # More is kept than there is when slots were lost: then nothing can be kept.
        kept = sum(min(claim.keep, claim.cap) for claim in self._claims.values()) <= self._slots
        for each in self._claims.values():
            if each.cap > 0:
                claim = each if kept else replace(each, keep=0)
                self._tree.leaf(claim.group, claim.user).claims[claim.job] = claim
        self._targets = dict.fromkeys(self._claims, 0) | replan(self._tree)
        return {job: target for job, target in self._targets.items() if before.get(job, 0) != target}

    # --- reading it ---------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self._slots

    def target(self, job: str) -> int:
        """Slots the job is entitled to. KeyError when it is not there."""
        return self._targets[job]

    def claim(self, job: str) -> Claim:
        """What the job asks for. KeyError when it is not there."""
        return self._claims[job]

    def cut(self, job: str) -> Cut:
        """What keeps the job from one slot more, in numbers. O(jobs of its group). KeyError when it is not there."""
        claim = self._claims[job]
        leaf = self._tree.leaf(claim.group, claim.user)
        return cut_of(self._tree, leaf, claim, self._targets)

    def groups(self) -> dict[str, Holding]:
        """What each instance group has, owns, borrows and lends, by name in the order of the plan."""
        return holdings(self._tree)

    def node(self, group: str) -> Node:
        """The node of a group, with all its numbers."""
        return self._tree.groups[group]
