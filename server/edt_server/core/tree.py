"""Keep the tree that slots are divided down: groups, their users where they have shares, and what each node needs.

What the jobs of a leaf ask for becomes a few numbers of the leaf, and of every node above it (`GroupNode`), updated in
O(depth) per change. Owned slots are counted once: a parent owns at least what its children do. When fewer slots are
left than are owned, all owners lose in proportion, whether they use their slots or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.claim import Claim, Ranking
from edt_server.core.division import Division
from edt_server.core.divisor_rule import Columns, WeightedClaim, divide

EVERYBODY_ELSE = "*"


@dataclass(slots=True, eq=False)
class GroupNode:
    """The root, a group, or a user of a group. All counts are slots.

    Attributes:
        name: the group, or for a user the owner of the jobs. "" for the root.
        order: settles ties among siblings, lower first.
        own: how many of the present slots it owns.
        lend, borrow: limits, None for no limit.
        policy, aware: how it divides among jobs, and whether by measured speed.
        user_shares: owner of jobs → weight, None for no level of users.
        user_slots: limit of each user below it, None for no limit.
        claims: of its own jobs that ask for something.
        floor: what the jobs below need to run at all.
        demand: what it could use, without its limit on borrowing.
        reserve: what it has before others may borrow: its own slots in use, and its own slots that it does not lend.
        base: what it has before the weighted division: reserve and floors.
        most: what it may have.
        budget: the slots it divides, with the slots that it does not lend.
        used: how many of these its jobs were given.
        division: how its budget is divided among its children, kept incrementally. None before it is needed.
        ranking: the claims of a leaf with a strict policy, in order. None before it is needed.
        turn: the turn of a leaf with a strict policy. Lower runs first.
        excluded: not even the first job of a leaf with a strict policy can count on its floor.
        room: floors and reserves that may be below it.
        columns: its claims as arrays. None before they are needed, and where arrays cannot hold them.
    """

    name: str
    order: int
    parent: GroupNode | None
    share: int = 1
    own: int = 0
    lend: int | None = None
    borrow: int | None = None
    policy: str = "fairshare"
    aware: bool = False
    user_shares: dict[str, int] | None = None
    user_slots: int | None = None
    children: dict[str, GroupNode] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    floor: int = 0
    demand: int = 0
    reserve: int = 0
    base: int = 0
    most: int = 0
    reserves_below: int = 0
    bases_below: int = 0
    excess: int = 0
    budget: int = 0
    used: int = 0
    division: Division | None = None
    columns: Columns | None = None
    ranking: Ranking | None = None
    turn: float = 0
    excluded: bool = False
    room: int = 0

    def weighted(self) -> WeightedClaim:
        """Return its claim among its siblings."""
        return WeightedClaim(self.share, self.base, self.most, self.order, owned=self.reserve)


class Tree:
    """The tree of nodes that divide a number of slots, with its groups by name in the order of the plan.

    `excess` is by how many slots floors exceed what nodes may have, 0 when every job can run.
    """

    def __init__(self, groups: Sequence[InstanceGroup], slots: int) -> None:
        self.root = GroupNode("", 0, None)
        self.groups: dict[str, GroupNode] = {}
        self.excess = 0
        self._planned = {group.name: group.own for group in groups}
        self._inner = {group.parent for group in groups}
        for number, group in enumerate(groups):
            self.groups[group.name] = GroupNode(
                name=group.name,
                order=number,
                parent=None,
                share=group.share,
                lend=group.lend,
                borrow=group.borrow,
                policy=group.policy,
                aware=group.throughput_aware,
                user_shares=None if group.name in self._inner else group.weights_of_users,
                user_slots=group.user_slots,
            )
        for group in groups:
            parent = self.groups[group.parent] if group.parent else self.root
            self.groups[group.name].parent = parent
            parent.children[group.name] = self.groups[group.name]
        self.resize(slots)

    def resize(self, slots: int) -> None:
        """Set the number of slots. The needs of leaves with jobs have to be set again."""
        self.root.own = self.root.room = slots
        _share_out_what_is_owned(self.root, self._planned, self._inner)
        for name, node in self.groups.items():
            if name not in self._inner and not node.children:
                self.need(node, node.floor, node.demand)  # slots that it does not lend are withheld even without jobs

    def leaf(self, group: str, user: str) -> GroupNode:
        """Return the node of this user's jobs, and make it if it does not exist."""
        node = self.groups[group]
        if node.user_shares is None:
            return node
        if user not in node.children:
            share = node.user_shares.get(user, node.user_shares.get(EVERYBODY_ELSE, 1))
            # A user owns no slots, so that what the user may borrow is all that the user may have.
            most = node.user_slots
            node.children[user] = GroupNode(user, 0, node, share, borrow=most, policy=node.policy, aware=node.aware)
            node.children = dict(sorted(node.children.items()))
            for number, child in enumerate(node.children.values()):
                child.order = number  # by name, so that it does not depend on the order of arrival
            # The order of the other users may have changed, and the division's entries contain it.
            node.division = None
        return node.children[user]

    def leaves(self) -> Iterator[GroupNode]:
        """Yield the nodes that hold jobs, users in place of their group."""
        for node in self.groups.values():
            if node.user_shares is not None:
                yield from node.children.values()
            elif not node.children:
                yield node

    def need(self, leaf: GroupNode, floor: int, demand: int) -> None:
        """Set what the jobs of a leaf need, and update every node above."""
        # Only differences go up, so that a change costs O(depth) (decision 013).
        node, reserves, bases, more = leaf, 0, floor, floor - leaf.floor
        leaf.floor = floor
        while node.parent is not None:
            parent = node.parent
            own = node.own
            owned = max(reserves, min(own, demand))
            kept = own if node.lend is None else own - node.lend
            reserve = owned if node.lend is None else max(reserves, min(own, max(demand, kept)))
            limit = demand if node.borrow is None else min(demand, owned + node.borrow)
            base = max(reserve, bases)
            room = max(reserve, limit)
            most = max(room, bases)
            excess = max(0, bases - room)
            self.excess += excess - node.excess
            parent.floor += more
            parent.demand += most - node.most
            parent.reserves_below += reserve - node.reserve
            parent.bases_below += base - node.base
            node.demand, node.reserve, node.base, node.most = demand, reserve, base, most
            node.excess, node.room = excess, room
            node, reserves, bases = parent, parent.reserves_below, parent.bases_below
            demand = parent.demand
        excess = max(0, node.bases_below - node.own)
        self.excess += excess - node.excess
        node.excess = excess


def path(node: GroupNode) -> Iterable[GroupNode]:
    """Return the node and all above it, the root last."""
    at: GroupNode | None = node
    while at is not None:
        yield at
        at = at.parent


def _share_out_what_is_owned(root: GroupNode, planned: dict[str, int], inner: set[str]) -> None:
    def owned_below(node: GroupNode) -> int:
        below = node.children.values() if node.name in inner else ()
        return max(planned[node.name], sum(owned_below(child) for child in below))

    def give(node: GroupNode) -> None:
        if node.name not in inner:
            return
        wanted = {child.name: owned_below(child) for child in node.children.values()}
        # Slots were lost. All owners lose in proportion, whether they use their slots or not (decision 013).
        if sum(wanted.values()) > node.own:
            claims = [WeightedClaim(max(1, wanted[c.name]), 0, wanted[c.name], c.order) for c in node.children.values()]
            wanted = dict(zip(node.children, divide(node.own, claims), strict=True))
        for child in node.children.values():
            child.own = wanted[child.name]
            give(child)

    give(root)


@dataclass(frozen=True, slots=True)
class Holding:
    """The slots that a group has. Counts are slots.

    Attributes:
        entitled: the sum of the targets of its jobs.
        own: how many of the present slots it owns.
        borrowed: what it uses or keeps beyond its own, whether owned by other groups or by none.
        lent: what others use of its own.
        lenders: group → slots of `borrowed` that it owns. The rest has no owner.
    """

    entitled: int
    own: int
    borrowed: int
    lent: int
    lenders: dict[str, int]


def holdings(tree: Tree) -> dict[str, Holding]:
    """Return the holding of every group after the division, by name in the order of the plan.

    A group uses its own slots first. What it uses beyond them comes from slots without an owner, then from slots that
    its siblings own and neither use nor keep, then from what the group above has borrowed in turn.
    """
    lenders = {"": dict[str, int]()}
    lent: dict[str, int] = {}
    held: dict[str, int] = {}
    _hold(tree.root, held)
    _trace(tree.root, held, lenders, lent)
    return {
        name: Holding(
            entitled=node.used,
            own=node.own,
            borrowed=max(0, held[name] - node.own),
            lent=lent.get(name, 0),
            lenders=lenders.get(name, {}),
        )
        for name, node in tree.groups.items()
    }


def _groups_below(node: GroupNode) -> list[GroupNode]:
    return [] if node.user_shares is not None else list(node.children.values())


def _hold(node: GroupNode, held: dict[str, int]) -> int:
    """Fill in what a node and each group below it use, with their own slots that they do not lend and nobody uses."""
    groups = _groups_below(node)
    used = sum(_hold(child, held) for child in groups) if groups else node.used
    kept = 0 if node.lend is None else node.own - node.lend
    held[node.name] = max(used, kept)
    return held[node.name]


def _trace(node: GroupNode, held: dict[str, int], lenders: dict[str, dict[str, int]], lent: dict[str, int]) -> None:
    """Fill in the lenders of the groups below a node, and what each of them lends."""
    groups = _groups_below(node)
    if not groups:
        return
    unused = {each.name: each.own - held[each.name] for each in groups if held[each.name] < each.own}
    above = dict(lenders[node.name])
    owned = node.own - sum(child.own for child in groups)  # owned by the node itself, or at the root by no group
    # Slots that the node has borrowed but that have no owner count with its own.
    nobodys = owned + max(0, held[node.name] - node.own) - sum(above.values())
    for child in sorted(groups, key=lambda child: child.order):
        wanted = max(0, held[child.name] - child.own)
        taken = min(wanted, nobodys)
        nobodys -= taken
        wanted -= taken
        mine: dict[str, int] = {}
        for source in (unused, above):
            for name in list(source):
                slots = min(wanted, source[name])
                if slots:
                    source[name] -= slots
                    wanted -= slots
                    mine[name] = mine.get(name, 0) + slots
                    if source is unused:
                        lent[name] = lent.get(name, 0) + slots
        lenders[child.name] = mine
    # What a group lends outside its parent, it lends as part of the parent, after what belongs to the parent alone.
    beyond = lent.get(node.name, 0) - nobodys
    for name in unused:
        slots = max(0, min(unused[name], beyond))
        if slots:
            beyond -= slots
            lent[name] = lent.get(name, 0) + slots
    for child in groups:
        _trace(child, held, lenders, lent)
