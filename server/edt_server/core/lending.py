"""Find which groups have borrowed slots from which, after the division.

A group uses its own slots first. What it uses beyond them comes from slots without an owner, then from slots that its
siblings own and do not use, then from what the group above has borrowed in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from edt_server.core.tree import GroupNode, Tree


@dataclass(frozen=True, slots=True)
class Holding:
    """The slots that a group has. Counts are slots.

    Attributes:
        entitled: the sum of the targets of its jobs.
        own: how many of the present slots it owns.
        borrowed: what it uses beyond its own, whether owned by other groups or by none.
        lent: what others use of its own.
        lenders: group → slots of `borrowed` that it owns. The rest has no owner.
    """

    entitled: int
    own: int
    borrowed: int
    lent: int
    lenders: dict[str, int]


def holdings(tree: Tree) -> dict[str, Holding]:
    """Return the holding of every group, by name in the order of the plan."""
    lenders = {"": dict[str, int]()}
    lent: dict[str, int] = {}
    _trace(tree.root, lenders, lent)
    return {
        name: Holding(
            entitled=node.used,
            own=node.own,
            borrowed=max(0, node.used - node.own),
            lent=lent.get(name, 0),
            lenders=lenders.get(name, {}),
        )
        for name, node in tree.groups.items()
    }


def _trace(node: GroupNode, lenders: dict[str, dict[str, int]], lent: dict[str, int]) -> None:
    """Fill in the lenders of the groups below a node, and what each of them lends."""
    groups = [] if node.user_shares is not None else list(node.children.values())
    if not groups:
        return
    unused = {child.name: child.own - child.used for child in groups if child.used < child.own}
    above = dict(lenders[node.name])
    owned = node.own - sum(child.own for child in groups)  # owned by the node itself, or at the root by no group
    # Slots that the node has borrowed but that have no owner count with its own.
    nobodys = owned + max(0, node.used - node.own) - sum(above.values())
    for child in sorted(groups, key=lambda child: child.order):
        wanted = max(0, child.used - child.own)
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
        _trace(child, lenders, lent)
