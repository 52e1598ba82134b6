"""Which way the gradients of an update are added up, and in which memory they lie meanwhile.

Members that can all see each other's memory read it (`shared_exchange.py`); others, and GPUs, send (`exchange.py`).
They find out when they `meet`, which may be long before they need it, or at the first update of a group. Knows nothing
of models or steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.group_exchange import Exchange, Scratch
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.memory_window import Address, open_window
from edt_sdk.training.exchange.shared_exchange import Neighbour, Neighbours, Result, SharedExchange, meet
from edt_sdk.training.exchange.vectors import Vectors


class Exchanges:
    """Makes the exchange of each update of one process.

    Args:
        layout: of the vectors.
        fast: add in whatever order is fastest.
    """

    def __init__(self, layout: Layout, *, fast: bool) -> None:
        self._layout = layout
        self._fast = fast
        self._window = open_window() if layout.on_cpu else None
        self._own = Vectors(layout, self._window)
        # A vector that is being sent when a member dies cannot be used again.
        self._sent = Vectors(layout, None)
        self._result = None if self._window is None else Result(layout, self._window)
        self._met: tuple[Group, Neighbours | None] | None = None
        self._ahead: tuple[Group, Neighbours | None] | None = None
        self._known: Mapping[Address, Neighbour] = {}
        self._scratch = Scratch()
        self._world = 0

    def meet(self, group: Group) -> None:
        """Find out ahead of a group's first update, while another group's are still under way. From one other thread.

        All members of the group must do so, or none.

        Raises:
            RuntimeError: a member is gone.
        """
        if group.world > 1 and self._layout.on_cpu:
            self._ahead = group, self._look_at(group)

    def expect(self, vectors: int, world: int) -> None:
        """So many vectors will be needed by one of `world` members: let the system provide their memory.

        For a process that trains meanwhile, in another thread.
        """
        if world > 1 and self._result is not None:
            self._result.touch(world)
        self._own.expect(vectors)

    def vectors(self, group: Group | None) -> Vectors:
        """Where to take the vectors of an update in this group from; None where the group is not known yet.

        Raises:
            RuntimeError: a member is gone.
        """
        send = group is not None and group.world > 1 and self._neighbours(group) is None
        return self._sent if send else self._own

    def unit(self, counts: Sequence[int]) -> int:
        """What all weights of an update are divided by: in mode `fast` shards of one size weigh 1."""
        return math.gcd(*counts) if self._fast else common_power_of_two(counts)

    def divisor(self, counts: Sequence[int]) -> float:
        """Of the sum of gradients times weights."""
        return float(sum(counts) // self.unit(counts))

    def between(
        self, group: Group, counts: Sequence[int], vectors: Sequence[Flat], sums: Sequence[int]
    ) -> Exchange | SharedExchange:
        """The exchange of one update; nothing of it started.

        Args:
            group: the members.
            counts: samples of all V shards.
            vectors: all of this rank's.
            sums: which of them hold the sums of its subtrees, left to right.

        Raises:
            RuntimeError: a member is gone.
        """
        divisor = self.divisor(counts)
        neighbours = self._neighbours(group)
        if neighbours is not None:
            own = [vectors[number] for number in sums]
            return SharedExchange(neighbours, counts, divisor, own, vectors[0], fast=self._fast)
        if group.world != self._world:
            self._world = group.world
            self._scratch.clear()
        return Exchange(
            group, self._layout, counts, divisor, vectors, sums, fast=self._fast, scratch=self._scratch
        )  # fmt: skip

    def _neighbours(self, group: Group) -> Neighbours | None:
        if group.world == 1 or not self._layout.on_cpu:
            self._met, self._known = None, {}
            return None
        if self._met is None or self._met[0] is not group:
            ahead, self._ahead = self._ahead, None
            self._met = ahead if ahead is not None and ahead[0] is group else (group, self._look_at(group))
            # Lets go of the memory of former members.
            self._known = {} if self._met[1] is None else self._met[1].known
        return self._met[1]

    def _look_at(self, group: Group) -> Neighbours | None:
        return meet(group, self._layout, self._window, self._result, self._known)


def common_power_of_two(counts: Sequence[int]) -> int:
    """The largest that divides all counts: multiplying by it would only change exponents, so it is left out."""
    common = math.gcd(*counts)
    return common & -common
