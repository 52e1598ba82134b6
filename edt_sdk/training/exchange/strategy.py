"""Choose how the gradients of an update are summed, and in which memory they lie.

Members that can all read each other's memory do so (`shared_exchange.py`). Members on several hosts, and GPUs, send
(`group_exchange.py`). The members agree on it when they `meet`, either long before they need it or at the first update
of a group. This module knows neither models nor steps.
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
    """Creates the exchange of each update in one process.

    Args:
        layout: of the vectors.
        fast: add in the fastest order.
    """

    def __init__(self, layout: Layout, *, fast: bool) -> None:
        self._layout = layout
        self._fast = fast
        self._window = open_window() if layout.on_cpu else None
        self._own = Vectors(layout, self._window)
        # A vector in transfer when a member dies cannot be reused, so sent vectors have a pool apart from the window.
        self._sent = Vectors(layout, None)
        self._result = None if self._window is None else Result(layout, self._window)
        self._met: tuple[Group, Neighbours | None] | None = None
        self._ahead: tuple[Group, Neighbours | None] | None = None
        self._known: Mapping[Address, Neighbour] = {}
        self._scratch = Scratch()
        self._world = 0

    def meet(self, group: Group) -> None:
        """Open the windows of a group before its first update, while the previous group still trains. One other thread.

        Either all members of the group do so, or none.

        Raises:
            RuntimeError: a member is gone.
        """
        if group.world > 1 and self._layout.on_cpu:
            self._ahead = group, self._look_at(group)

    def expect(self, vectors: int, world: int) -> None:
        """Provide memory for a number of vectors, as a member among `world` will need it.

        Called while another thread trains.
        """
        if world > 1 and self._result is not None:
            self._result.touch(world)
        self._own.expect(vectors)

    def vectors(self, group: Group | None) -> Vectors:
        """Return the pool for the vectors of an update in this group. None where the group is not known yet.

        Raises:
            RuntimeError: a member is gone.
        """
        send = group is not None and group.world > 1 and self._neighbours(group) is None
        return self._sent if send else self._own

    def unit(self, counts: Sequence[int]) -> int:
        """Return the common divisor of all weights of an update. In mode `fast` shards of equal size weigh 1."""
        return math.gcd(*counts) if self._fast else common_power_of_two(counts)

    def divisor(self, counts: Sequence[int]) -> float:
        """Return the divisor for the sum of gradients times weights."""
        return float(sum(counts) // self.unit(counts))

    def between(
        self, group: Group, counts: Sequence[int], vectors: Sequence[Flat], sums: Sequence[int]
    ) -> Exchange | SharedExchange:
        """Create the exchange of an update. It has not sent anything yet.

        Args:
            group: the members.
            counts: samples of all V shards.
            vectors: all vectors of this rank.
            sums: the numbers of the vectors with the sums of its subtrees, left to right.

        Raises:
            RuntimeError: a member is gone.
        """
        divisor = self.divisor(counts)
        neighbours = self._neighbours(group)
        if neighbours is not None:
            own = [vectors[number] for number in sums]
            return SharedExchange(neighbours, counts, divisor, own, vectors[0], fast=self._fast)
        # Scratch lengths depend on the number of ranks, so old ones would never be used again.
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
            # Use the windows opened ahead only for that group: a newer generation may have replaced it (decision 025).
            ahead, self._ahead = self._ahead, None
            self._met = ahead if ahead is not None and ahead[0] is group else (group, self._look_at(group))
            # Releases the mapped memory of former members.
            self._known = {} if self._met[1] is None else self._met[1].known
        return self._met[1]

    def _look_at(self, group: Group) -> Neighbours | None:
        return meet(group, self._layout, self._window, self._result, self._known)


def common_power_of_two(counts: Sequence[int]) -> int:
    """Return the largest power of two that divides all counts. It only changes exponents, so weights leave it out."""
    common = math.gcd(*counts)
    return common & -common
