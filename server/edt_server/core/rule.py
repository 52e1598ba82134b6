"""The rule computes how many slots each job of a resource group is entitled to. It is a function of its input.

Every node of the tree of instance groups divides its slots by Webster's rule, after the slots that each child owns and
uses and after the floors below it. A leaf divides among its jobs by its policy. Only groups, slots, claims and turns
count, never an earlier decision, so nothing can oscillate: an arrival lets no other job grow, a departure shrinks no
other job, and the fewest slots move. Floors and units above one slot break this only where a job starts or ceases to
fit.

The cost of an event depends on what moves. `incremental_admission` updates the set of running jobs while not all floors
fit, and `incremental_targets` updates how slots are divided among them. With units above one slot, with floors above
one that do not all fit, and when slots or groups change, `replan` recomputes everything. Both ways give the same
targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.admission import ranking
from edt_server.core.claim import Claim
from edt_server.core.cutoff import Cut, Cuts
from edt_server.core.incremental_admission import IncrementalAdmission
from edt_server.core.incremental_targets import IncrementalTargets, exchange, forces_replan
from edt_server.core.replan import add_up, replan
from edt_server.core.tree import Holding, Tree, holdings, path


class Rule:
    """The targets of all jobs of a resource group. `groups` are its parents and leaves, as the plan has checked them.

    `put`, `remove`, `set_slots` and `set_turn` collect changes, and `settle` computes what follows from them. Every
    read returns the state of the last `settle`.
    """

    def __init__(self, groups: Sequence[InstanceGroup], slots: int) -> None:
        self._groups = tuple(groups)
        self._claims: dict[str, Claim] = {}
        self._running = self._claims  # the claims in the tree: all of them unless `_admission` keeps some out
        self._targets: dict[str, int] = {}
        self._tree = Tree(groups, slots)
        self._admission: IncrementalAdmission | None = None
        self._turns: dict[tuple[str, str], float] = {}  # of leaves with a strict policy
        self._changed: dict[str, Claim | None] = {}  # job → its claim at the last settle, None for a new job
        self._turned: dict[tuple[str, str], float] = {}
        self._cuts: Cuts | None = None  # as of the last settle
        self._replan_due = True
        self._resized = False  # the number of slots changed: targets need a replan, the admission does not
        self._forcing = 0  # how many claims force a replan at every settle
        self._gangs = 0  # how many claims need more than one slot at once
        self._kept = 0  # sum of the slots that jobs keep
        self._keeps_dropped = False  # more is kept than there is: `keep` is 0 in the tree's copies of the claims

    # --- changing it --------------------------------------------------------------------------------------------------

    def put(self, claim: Claim) -> None:
        """Add a job or replace its claim. KeyError when there is no such group."""
        self._tree.groups[claim.group]  # raises before anything has changed
        old = self._claims.get(claim.job)
        # Only the first of several changes counts: the tree still has the claim of the last `settle`.
        self._changed.setdefault(claim.job, old)
        self._count(old, -1)
        self._count(claim, 1)
        self._claims[claim.job] = claim

    def remove(self, job: str) -> None:
        """Remove a job. KeyError when it is not there."""
        old = self._claims.pop(job)
        self._changed.setdefault(job, old)
        self._count(old, -1)

    def set_slots(self, slots: int) -> None:
        """Set the number of slots."""
        if slots != self._tree.root.own:
            self._tree.resize(slots)
            self._resized = True

    def set_turn(self, group: str, user: str, turn: float) -> None:
        """Set the turn that all jobs of a leaf with a strict policy share. Lower runs first, and the default is 0.

        `user` counts where the group has user shares. KeyError when there is no such group.
        """
        self._tree.leaf(group, user).turn = turn
        self._turns[group, user] = self._turned[group, user] = turn

    def settle(self) -> dict[str, int]:
        """Return the targets that changed since the last call, by job. Removed jobs are left out."""
        self._cuts = None
        changed, self._changed = self._changed, {}
        turned, self._turned = self._turned, {}
        if not (changed or turned or self._replan_due or self._resized):
            return {}
        for job in changed:
            if job in self._claims:
                self._targets.setdefault(job, 0)
            else:
                self._targets.pop(job, None)
        moved = None if self._must_replan() else self._update_incrementally(changed, turned)
        if moved is None:
            self._admit_all(changed)
            moved = self._replan()
        self._resized = False
        self._targets.update(moved)
        return moved

    def _must_replan(self) -> bool:
        """Return whether no incremental update is possible."""
        if self._replan_due or self._forcing or self._keeps_dropped or self._kept > self._tree.root.own:
            return True
        # With floors above one slot, single exchanges need not reach the best set of jobs (decision 017).
        return self._resized if self._admission is None else self._gangs > 0

    def _update_incrementally(
        self, changed: dict[str, Claim | None], turned: dict[tuple[str, str], float]
    ) -> dict[str, int] | None:
        """Return the targets that changed, None when only a replan can find them."""
        tree, targets = self._tree, IncrementalTargets(self._tree, self._targets)
        if self._admission is None:
            if targets.ask(changed, self._claims):
                return targets.divide()
            if self._gangs:
                return None  # incremental admission needs floors of a single slot (decision 017)
            self._admission = IncrementalAdmission(self._groups, tree.root.own, self._claims, self._turns)
            self._running = self._admission.running
            outside = self._outside()
        else:
            outside = self._admission.settle(changed, self._claims, turned, tree.root.own)
        assert self._admission is not None
        if self._admission.overcommitted:
            return None
        targets.ask(outside, self._running)
        for group, user, excluded in self._admission.strict_leaves():
            targets.exclude(tree.leaf(group, user), excluded)
        if tree.excess and not self._resized:
            return None  # jobs without preemption keep slots that belong to other groups
        if self._admission.uncontended:
            # Not as soon as all jobs are in: around the limit it would be built and dropped at every event.
            self._admission, self._running = None, self._claims
        return self._replan() if self._resized else targets.divide()

    def _outside(self) -> dict[str, Claim | None]:
        """Return the jobs that are not admitted, with their claims."""
        return {job: claim for job, claim in self._claims.items() if job not in self._running}

    def _admit_all(self, changed: dict[str, Claim | None]) -> None:
        """Put the claims of all jobs into the tree, as `replan` needs them."""
        # First the waiting jobs with their present claims, then the changed ones, which may be among them.
        for claim in self._outside().values():
            exchange(self._tree, None, claim)
        self._admission, self._running = None, self._claims
        for job, old in changed.items():
            exchange(self._tree, old, self._claims.get(job))
        self._limit_keeps()
        for leaf in self._tree.leaves():
            leaf.excluded = False

    def _replan(self) -> dict[str, int]:
        """Recompute the targets from the claims in the tree, and return the changed targets."""
        before = self._targets
        found = replan(self._tree)
        if found.admitted is not None and self._admission is not None:
            # The tree held admitted jobs only, and not even these fit: jobs keep slots of other groups.
            self._admit_all({})
            found = replan(self._tree)
        self._targets = found.targets
        if len(found.targets) != len(self._claims):
            self._targets = dict.fromkeys(self._claims, 0) | found.targets
        self._replan_due = not found.plain or (found.admitted is not None and self._gangs > 0)
        if found.admitted is not None and not (self._replan_due or self._forcing or self._keeps_dropped):
            admission = IncrementalAdmission(
                self._groups, self._tree.root.own, self._claims, self._turns, found.admitted
            )
            if admission.overcommitted:
                self._replan_due = True
            else:
                self._admission, self._running = admission, admission.running
                for claim in self._outside().values():
                    exchange(self._tree, claim, None)
        return {job: target for job, target in self._targets.items() if before.get(job, 0) != target}

    def _count(self, claim: Claim | None, sign: int) -> None:
        if claim is not None:
            self._forcing += sign * forces_replan(self._tree, claim)
            self._gangs += sign * (claim.cap > 0 and claim.floor > 1)
            self._kept += sign * min(claim.keep, claim.cap)

    def _limit_keeps(self) -> None:
        """Ignore what jobs keep while it is more than there is, which happens when slots were lost."""
        too_much = self._kept > self._tree.root.own
        if too_much or self._keeps_dropped:
            for node in self._tree.leaves():
                node.columns = node.ranking = None
                for job in node.claims:
                    claim = self._claims[job]
                    node.claims[job] = replace(claim, keep=0) if too_much else claim
        self._keeps_dropped = too_much

    # --- reading it ---------------------------------------------------------------------------------------------------

    def target(self, job: str) -> int:
        """Return the slots the job is entitled to, 0 before the first `settle`. KeyError when it is not there."""
        return self._targets[job]

    def used(self, group: str, user: str) -> tuple[int, int]:
        """Return, for a leaf with a strict policy, the slots its jobs are entitled to and the first job's floor."""
        leaf = self._tree.leaf(group, user)
        first = ranking(leaf).first(self._tree.root.own)
        return leaf.used, 1 if first is None else max(1, first.floor)

    def contested(self, group: str, user: str) -> bool:
        """Return whether a waiting job could use a slot that this leaf gives up.

        True where no incremental admission can answer it, and for a leaf that was not there at the last `settle`.
        """
        return self._admission is None or self._admission.contested(group, user)

    def claim(self, job: str) -> Claim:
        """Return the job's claim. KeyError when it is not there."""
        return self._claims[job]

    def claims(self) -> Iterable[Claim]:
        """Return the claims of all jobs."""
        return self._claims.values()

    def cut(self, job: str) -> Cut:
        """Return what keeps the job from one slot more, in numbers. KeyError when it is not there.

        O(jobs of its group) for the first call after a change, about O(1) for the others.
        """
        if self._cuts is None:
            self._cuts = Cuts(self._tree, self._targets)
        return self._cuts.of(self._claims[job])

    def groups(self) -> dict[str, Holding]:
        """Return what each instance group has, owns, borrows and lends, by name in the order of the plan."""
        add_up(self._tree.root)
        return holdings(self._tree)

    def most(self, group: str) -> int:
        """Return how many slots the jobs of a leaf can have at best, with no other job there."""
        *above, root = path(self._tree.groups[group])
        best = root.own
        for node in reversed(above):
            siblings = node.parent.children.values() if node.parent is not None else ()
            withheld = (max(0, each.own - each.lend) for each in siblings if each is not node and each.lend is not None)
            best = max(best - sum(withheld), node.own)
            if node.borrow is not None:
                best = min(best, node.own + node.borrow)
        limit = self._tree.groups[group].user_slots
        return best if limit is None else min(best, limit)
