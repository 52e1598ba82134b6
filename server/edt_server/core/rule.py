"""The rule: how many slots each job of one resource group is entitled to. A function of its input.

Down the tree of instance groups every node divides what it has by Webster's rule, after what each child owns and uses
and after the floors below it; a leaf divides among its jobs by its policy. Only groups, slots, claims and turns count,
not what was decided before, so nothing can oscillate: nobody grows when somebody arrives, nobody shrinks when somebody
leaves, and the fewest slots move. Floors and units above one slot bend this where one of them begins or ceases to fit,
and only there.

An event costs what moves: who is let in is kept up to date by `crowd` while not all floors fit, and how slots are
divided among those who are by `upkeep`. With units above one slot, with floors above one that do not all fit, and when
slots or groups change, everything is worked out from nothing (`replan`). Both give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.admission import ranking
from edt_server.core.claim import Claim
from edt_server.core.crowd import Crowd
from edt_server.core.cut import Cut, Cuts
from edt_server.core.lending import Holding, holdings
from edt_server.core.replan import add_up, replan
from edt_server.core.tree import Node, Tree
from edt_server.core.upkeep import Upkeep, exchange, odd

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
        self._claims: dict[str, Claim] = {}
        self._running = self._claims  # those that the tree knows of; while there is a crowd, another dictionary
        self._targets: dict[str, int] = {}
        self._tree = Tree(groups, slots)
        self._crowd: Crowd | None = None
        self._turns: dict[tuple[str, str], float] = {}  # of leaves with a strict policy
        self._changed: dict[str, Claim | None] = {}  # job → its claim at the last settle
        self._turned: dict[tuple[str, str], float] = {}
        self._cuts: Cuts | None = None  # as of the last settle
        self._whole = True  # everything is to be worked out from nothing
        self._resized = False  # there is another number of slots: who is let in can be kept up to date
        self._odd = 0  # claims that keep the targets from being kept up to date
        self._gangs = 0  # claims that need more than one slot at once
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
            self._resized = True

    def set_groups(self, groups: Sequence[InstanceGroup]) -> None:
        """The plan is another one. KeyError, and nothing has changed, when a job is in a group that is not there."""
        tree = Tree(groups, self._tree.root.own)
        for claim in self._claims.values():
            tree.groups[claim.group]
        self._groups, self._tree, self._whole = tuple(groups), tree, True
        self._crowd, self._running = None, self._claims
        for claim in self._claims.values():
            exchange(tree, None, claim)
        self._changed = {job: self._claims.get(job) for job in self._changed}
        self._odd = sum(odd(tree, claim) for claim in self._claims.values())
        self._turns = {at: turn for at, turn in self._turns.items() if at[0] in tree.groups}
        for (group, user), turn in self._turns.items():
            tree.leaf(group, user).turn = turn

    def line_up(self, group: str, user: str, turn: float) -> None:
        """The turn of a group, or of a user of one, with a strict policy; lower runs first, 0 unless it was set.

        All jobs there have that one turn; what it is used for is the policy's choice. `user` counts where the group has
        user shares. KeyError when there is no such group.
        """
        self._tree.leaf(group, user).turn = turn
        self._turns[group, user] = self._turned[group, user] = turn

    def settle(self) -> dict[str, int]:
        """The jobs whose target is another one than after the last time, and that target; without removed jobs."""
        self._cuts = None
        changed, self._changed = self._changed, {}
        turned, self._turned = self._turned, {}
        if not (changed or turned or self._whole or self._resized):
            return {}
        for job in changed:
            if job in self._claims:
                self._targets.setdefault(job, 0)
            else:
                self._targets.pop(job, None)
        moved = None if self._needs_a_new_plan() else self._kept_up(changed, turned)
        if moved is None:
            self._let_everybody_in(changed)
            moved = self._from_nothing()
        self._resized = False
        self._targets.update(moved)
        return moved

    def _needs_a_new_plan(self) -> bool:
        """Whether what is known does not help."""
        if self._whole or self._odd or self._nothing_kept or self._kept > self._tree.root.own:
            return True
        return self._resized if self._crowd is None else self._gangs > 0

    def _kept_up(self, changed: dict[str, Claim | None], turned: dict[tuple[str, str], float]) -> dict[str, int] | None:
        """The targets that are others now; None when it takes everything from nothing."""
        tree, upkeep = self._tree, Upkeep(self._tree, self._targets)
        if self._crowd is None:
            if upkeep.ask(changed, self._claims):
                return upkeep.divide()
            if self._gangs:
                return None
            self._crowd = Crowd(self._groups, tree.root.own, self._claims, self._turns)
            self._running = self._crowd.running
            outside = self._outside()
        else:
            outside = self._crowd.settle(changed, self._claims, turned, tree.root.own)
        assert self._crowd is not None
        if self._crowd.crushed:
            return None
        upkeep.ask(outside, self._running)
        for group, user, shut in self._crowd.shut():
            upkeep.shut(tree.leaf(group, user), shut)
        if tree.excess and not self._resized:
            return None  # jobs keep what is not their group's
        if self._crowd.scattered:
            self._crowd, self._running = None, self._claims
        return self._from_nothing() if self._resized else upkeep.divide()

    def _outside(self) -> dict[str, Claim | None]:
        """Who is not let in."""
        return {job: claim for job, claim in self._claims.items() if job not in self._running}

    def _let_everybody_in(self, changed: dict[str, Claim | None]) -> None:
        """Put the claims of all jobs in the tree, from which a plan can be made from nothing."""
        for claim in self._outside().values():
            exchange(self._tree, None, claim)
        self._crowd, self._running = None, self._claims
        for job, old in changed.items():
            exchange(self._tree, old, self._claims.get(job))
        self._keep_what_can_be_kept()
        for leaf in self._tree.leaves():
            leaf.shut = False

    def _from_nothing(self) -> dict[str, int]:
        """The targets that are others now, of those whose claims are in the tree."""
        before = self._targets
        found = replan(self._tree)
        if found.admitted is not None and self._crowd is not None:  # jobs keep what is not their group's
            self._let_everybody_in({})
            found = replan(self._tree)
        self._targets = found.targets
        if len(found.targets) != len(self._claims):
            self._targets = dict.fromkeys(self._claims, 0) | found.targets
        self._whole = not found.plain or (found.admitted is not None and self._gangs > 0)
        if found.admitted is not None and not (self._whole or self._odd or self._nothing_kept):
            crowd = Crowd(self._groups, self._tree.root.own, self._claims, self._turns, found.admitted)
            if crowd.crushed:
                self._whole = True
            else:
                self._crowd, self._running = crowd, crowd.running
                for claim in self._outside().values():
                    exchange(self._tree, claim, None)
        return {job: target for job, target in self._targets.items() if before.get(job, 0) != target}

    def _count(self, claim: Claim | None, sign: int) -> None:
        if claim is not None:
            self._odd += sign * odd(self._tree, claim)
            self._gangs += sign * (claim.cap > 0 and claim.floor > 1)
            self._kept += sign * min(claim.keep, claim.cap)

    def _keep_what_can_be_kept(self) -> None:
        """More is kept than there is when slots were lost: then nothing can be."""
        too_much = self._kept > self._tree.root.own
        if too_much or self._nothing_kept:
            for node in self._tree.leaves():
                node.columns = node.ranking = None
                for job in node.claims:
                    claim = self._claims[job]
                    node.claims[job] = replace(claim, keep=0) if too_much else claim
        self._nothing_kept = too_much

    # --- reading it ---------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self._tree.root.own

    def target(self, job: str) -> int:
        """Slots the job is entitled to; 0 before the first `settle`. KeyError when it is not there."""
        return self._targets[job]

    def used(self, group: str, user: str) -> tuple[int, int]:
        """Of a leaf with a strict policy: slots its jobs are entitled to, and those that the first of them needs."""
        leaf = self._tree.leaf(group, user)
        first = ranking(leaf).first(self.slots)
        return leaf.used, 1 if first is None else max(1, first.floor)

    def contested(self, group: str, user: str) -> bool:
        """Whether anybody who is not let in could take the place of one who is in this leaf.

        True where that is not kept up to date, and for what was not there at the last `settle`.
        """
        return self._crowd is None or self._crowd.contested(group, user)

    def claim(self, job: str) -> Claim:
        """What the job asks for. KeyError when it is not there."""
        return self._claims[job]

    def cut(self, job: str) -> Cut:
        """What keeps the job from one slot more, in numbers. KeyError when it is not there.

        O(jobs of its group) for the first one after a change, hardly anything for others.
        """
        if self._cuts is None:
            self._cuts = Cuts(self._tree, self._targets)
        return self._cuts.of(self._claims[job])

    def groups(self) -> dict[str, Holding]:
        """What each instance group has, owns, borrows and lends, by name in the order of the plan."""
        add_up(self._tree.root)
        return holdings(self._tree)

    def node(self, group: str) -> Node:
        """The node of a group, with all its numbers."""
        return self._tree.groups[group]
