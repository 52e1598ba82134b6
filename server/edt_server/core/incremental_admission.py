"""Update incrementally which jobs run while not all can, as `admission.admit` does for one-slot floors.

Within a leaf the jobs with the lowest turns are admitted, so a leaf is a sorted line and a number. Between leaves the
limits of the groups above them decide. The sets of jobs that may be admitted together are the independent sets of a
matroid, so the result is optimal once no single exchange improves it. When a job changes, a few moves therefore
suffice. Each is found at a node on the path from a leaf to the root: the best waiting job below the node, and the last
admitted job below it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.admission import Key, key_of_job, key_of_leaf, least, useful
from edt_server.core.claim import Claim, Ranking
from edt_server.core.tree import GroupNode, Tree

Place = tuple[Key, "Gate"]  # keys are unique: gates are never compared


@dataclass(slots=True, eq=False)
class Gate:
    """The admission at one node of the tree.

    Attributes:
        line: the jobs of a leaf, sorted. For a strict leaf only its one turn.
        inside: how many of the line are admitted, from the first on.
        kept: how many of the line are always admitted.
        floor, demand: slots that the admitted jobs need, and that all jobs could use.
        ranking: the jobs of a leaf with a strict policy.
        best: the first waiting job below this node that no node further down holds up.
        worst: the last admitted job below this node that would free a slot here.
    """

    node: GroupNode
    parent: Gate | None
    children: list[Gate] = field(default_factory=list)
    line: list[tuple[Key, str]] = field(default_factory=list)
    inside: int = 0
    kept: int = 0
    floor: int = 0
    demand: int = 0
    ranking: Ranking | None = None
    best: Place | None = None
    worst: Place | None = None


class IncrementalAdmission:
    """The admission of a resource group's jobs while not all of them can run.

    Args:
        claims: of all jobs. Units are one slot, and so are floors, except for what is kept.
        turns: (group, user) of a leaf with a strict policy → its turn. The default is 0.
        inside: arrival numbers of the jobs that can run, where known, so that they need not be searched. Default: all.

    Attributes:
        running: the claims of the admitted jobs, with all claims of leaves with a strict policy.
    """

    def __init__(
        self,
        groups: Sequence[InstanceGroup],
        slots: int,
        claims: Mapping[str, Claim],
        turns: Mapping[tuple[str, str], float],
        inside: Collection[int] | None = None,
    ) -> None:
        self._tree = Tree(groups, slots)  # its demands count all jobs, its floors the admitted ones
        # Keyed by the node itself, not its id(): a deep copy of a core, as forecasts make it, has other ids.
        self._gates: dict[GroupNode, Gate] = {self._tree.root: Gate(self._tree.root, None)}
        self._moved: dict[str, None] = {}  # jobs that may have been admitted or excluded
        self._strict: dict[Gate, None] = {}  # leaves with a strict policy that may have changed
        for (group, user), turn in turns.items():
            self._tree.leaf(group, user).turn = turn
        for claim in claims.values():
            self._join(claim)
        for gate in self._gates.values():
            gate.line.sort()
            if gate.ranking is None:
                line = gate.line
                gate.inside = len(line) if inside is None else sum(key[3] in inside for key, _ in line)
                gate.floor += gate.inside - gate.kept
        self._mend([gate for gate in self._gates.values() if not gate.children])
        self._moved.clear()
        self.running: dict[str, Claim] = {job: claim for job, claim in claims.items() if self._is_in(claim)}

    @property
    def overcommitted(self) -> bool:
        """Whether jobs keep slots that other groups own: then this method cannot be used."""
        return self._tree.excess > 0

    @property
    def uncontended(self) -> bool:
        """Whether all jobs are admitted and an eighth of the slots is to spare: this is not needed for a while."""
        root = self._tree.root
        if 8 * root.floor > 7 * root.own:
            return False
        return all(gate.inside == len(gate.line) for gate in self._gates.values())

    def strict_leaves(self) -> list[tuple[str, str, bool]]:
        """Return (group, user, whether it is excluded) of each leaf with a strict policy that may have changed."""
        return [(*_name(gate.node), gate.inside < len(gate.line)) for gate in self._strict]

    def contested(self, group: str, user: str) -> bool:
        """Return whether a waiting job could use a slot that this leaf gives up."""
        gate = self._gate(self._tree.leaf(group, user))
        while gate.best is None and gate.parent is not None:
            if (gate.node.bases_below if gate.children else gate.node.floor) <= gate.node.reserve:
                return False  # the slot would stay reserved for its owner
            gate = gate.parent
        return gate.best is not None

    def settle(
        self,
        changed: Mapping[str, Claim | None],
        claims: Mapping[str, Claim],
        turned: Mapping[tuple[str, str], float],
        slots: int,
    ) -> dict[str, Claim | None]:
        """Update `running`, and return the jobs with a possibly changed entry there, each with its former one or None.

        Args:
            changed: job → its claim before.
            claims: of all jobs now.
            turned: the changed turns of leaves with a strict policy.
            slots: how many there are now.
        """
        touched: dict[Gate, None] = {}
        self._moved, self._strict = {}, {}
        was = {job: self.running.get(job) for job in changed}
        if slots != self._tree.root.own:
            self._tree.resize(slots)
            for gate in self._gates.values():
                if not gate.children and gate.parent is not None:
                    self._tree.need(gate.node, gate.floor, gate.demand)
                    touched[gate] = None
        for (group, user), turn in turned.items():
            gate = self._gate(self._tree.leaf(group, user))
            gate.node.turn = turn
            touched[gate] = None
        for job, old in changed.items():
            new = claims.get(job)
            for claim, step in ((old, self._leave), (new, self._join_in_order)):
                if claim is not None and claim.cap > 0:
                    gate = step(claim)
                    touched[gate] = None
        self._mend(list(touched))
        for job in self._moved:
            was.setdefault(job, self.running.get(job))
        for job in was:
            now = claims.get(job)
            if now is not None and self._is_in(now):
                self.running[job] = now
            else:
                self.running.pop(job, None)
        return was

    # --- lines --------------------------------------------------------------------------------------------------------

    def _join(self, claim: Claim) -> None:
        """Append a claim to its line, which is sorted afterwards."""
        if claim.cap == 0:
            return
        gate = self._gate(self._tree.leaf(claim.group, claim.user))
        gate.demand += useful(claim, gate.node.aware)
        if gate.ranking is not None:
            gate.ranking.put(claim)
            return
        gate.line.append((key_of_job(claim), claim.job))
        if claim.keep:
            gate.kept += 1
            gate.floor += least(claim)

    def _join_in_order(self, claim: Claim) -> Gate:
        gate = self._gate(self._tree.leaf(claim.group, claim.user))
        gate.demand += useful(claim, gate.node.aware)
        if gate.ranking is not None:
            gate.ranking.put(claim)
            return gate
        entry = key_of_job(claim), claim.job
        place = bisect_left(gate.line, entry)
        # A sorted list, not a heap: moving ten thousand entries takes a microsecond, and a heap would keep stale
        # entries (decision 017).
        gate.line.insert(place, entry)
        self._moved[claim.job] = None
        if claim.keep:
            gate.kept += 1
            gate.inside += 1
            gate.floor += least(claim)
        elif place < gate.inside:
            self._moved[gate.line[gate.inside][1]] = None  # the newcomer pushed the last admitted job out
        return gate

    def _leave(self, claim: Claim) -> Gate:
        gate = self._gate(self._tree.leaf(claim.group, claim.user))
        gate.demand -= useful(claim, gate.node.aware)
        if gate.ranking is not None:
            gate.ranking.drop(claim)
            return gate
        place = bisect_left(gate.line, (key_of_job(claim), claim.job))
        assert gate.line[place][1] == claim.job, f"{claim.job} is not in line"
        del gate.line[place]
        if claim.keep:
            gate.kept -= 1
            gate.floor -= least(claim)
            gate.inside -= 1
        elif place < gate.inside:
            gate.floor -= 1
            gate.inside -= 1
        return gate

    def _is_in(self, claim: Claim) -> bool:
        """Return whether the job may ask for slots: it is admitted, or its leaf's policy chooses."""
        if claim.cap == 0:
            return True
        gate = self._gate(self._tree.leaf(claim.group, claim.user))
        if gate.ranking is not None:
            return True
        return gate.inside > 0 and (key_of_job(claim), claim.job) <= gate.line[gate.inside - 1]

    def _gate(self, node: GroupNode) -> Gate:
        found = self._gates.get(node)
        if found is None:
            parent = None if node.parent is None else self._gate(node.parent)
            found = self._gates[node] = Gate(node, parent)
            if parent is not None:
                parent.children.append(found)
            if node.policy != "fairshare" and not node.children and node.user_shares is None:
                found.ranking = Ranking(node.policy, ())
        return found

    # --- moves --------------------------------------------------------------------------------------------------------

    def _mend(self, leaves: list[Gate]) -> None:
        """Admit and exclude jobs until no move improves the result, after the lines of these leaves have changed."""
        for leaf in leaves:
            self._ask(leaf)
        for leaf in leaves:
            _refresh(leaf)
        while leaves:
            # From the leaf upwards: a node's best and worst are right only after all nodes below it have settled.
            at: Gate | None = leaves[-1]
            moved: tuple[Gate, ...] = ()
            while at is not None and not moved:
                moved = self._move_at(at)
                at = at.parent
            for leaf in moved:
                self._need(leaf)
            for leaf in moved:
                _refresh(leaf)
            # A move can make the next one possible on its own path, so its leaves are checked again.
            if moved:
                leaves += moved
            else:
                leaves.pop()

    def _ask(self, gate: Gate) -> None:
        """Update a leaf's line and needs from its claims."""
        if gate.ranking is not None:
            first = gate.ranking.first(self._tree.root.own)
            wants = first is not None and first.keep == 0
            if not wants:
                gate.inside = 0
            gate.line = [(key_of_leaf(gate.node), "")] if wants else []
            gate.floor = gate.ranking.kept + gate.inside
            self._strict[gate] = None
        self._need(gate)

    def _need(self, gate: Gate) -> None:
        if gate.floor != gate.node.floor or gate.demand != gate.node.demand:
            self._tree.need(gate.node, gate.floor, gate.demand)

    def _move_at(self, gate: Gate) -> tuple[Gate, ...]:
        """Make at most one move at this node, and return the leaves with a changed line."""
        node = gate.node
        taken = node.bases_below if gate.children else node.floor
        if taken > node.room and gate.worst is not None:
            return (self._shift(gate.worst, -1),)
        if gate.best is None:
            return ()
        # Up to its reserve an admission changes no base above this node, so it cannot overfill a node there.
        if taken < node.room and (taken < node.reserve or gate.parent is None):
            return (self._shift(gate.best, 1),)
        # Also where there is room: a node above may be full, and offers no exchange within this node's reserve.
        if gate.worst is not None and gate.best < gate.worst:
            best = gate.best
            return self._shift(gate.worst, -1), self._shift(best, 1)
        return ()  # if there is room here, a node above decides in its own turn in `_mend`

    def _shift(self, place: Place, step: int) -> Gate:
        """Admit the first waiting job of a line (`step` 1), or exclude the last admitted one (`step` -1)."""
        gate = place[1]
        before = gate.inside
        gate.inside += step
        gate.floor += step
        if gate.ranking is None:
            self._moved[gate.line[min(before, gate.inside)][1]] = None
        else:
            self._strict[gate] = None
        return gate


def _name(leaf: GroupNode) -> tuple[str, str]:
    """Return the group and user of a leaf, "" where the group has no level of users."""
    if leaf.parent is not None and leaf.parent.user_shares is not None:
        return leaf.parent.name, leaf.name
    return leaf.name, ""


def _refresh(leaf: Gate) -> None:
    """Recompute the best and the worst at a leaf and at all nodes above it."""
    gate: Gate | None = leaf
    while gate is not None:
        if gate.children:
            best: Place | None = None
            worst: Place | None = None
            for child in gate.children:
                node = child.node
                taken = node.bases_below if child.children else node.floor
                there = child.best
                if there is not None and taken < node.room and (best is None or there < best):
                    best = there
                # Below the reserve, an eviction would free the slot for this child only.
                there = child.worst
                if there is not None and taken > node.reserve and (worst is None or there > worst):
                    worst = there
            gate.best, gate.worst = best, worst
        else:
            line, inside = gate.line, gate.inside
            gate.best = (line[inside][0], gate) if inside < len(line) else None
            gate.worst = (line[inside - 1][0], gate) if inside > gate.kept else None
        gate = gate.parent
