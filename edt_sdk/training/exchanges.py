"""Which way the gradients of an update are added up, and in which memory they lie meanwhile.

Members that can all see each other's memory read it (`shared_exchange.py`); others, and GPUs, send (`exchange.py`).
They find out at the first update of each group. Knows nothing of models or steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from edt_sdk.training.exchange import Exchange, Scratch
from edt_sdk.training.group import Group
from edt_sdk.training.layout import Flat, Layout
from edt_sdk.training.shared_exchange import Neighbours, SharedExchange, meet
from edt_sdk.training.vectors import Vectors
from edt_sdk.training.window import open_window


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
        self._result: Flat | None = None
        self._met: tuple[Group, Neighbours | None] | None = None
        self._scratch = Scratch()
        self._world = 0

    def vectors(self, group: Group | None) -> Vectors:
        """Where to take the vectors of an update in this group from; None where the group is not known yet.

        Raises:
            RuntimeError: a member is gone.
        """
        send = group is not None and group.world > 1 and self._neighbours(group) is None
        return self._sent if send else self._own

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
        divisor = float(sum(counts) // common_power_of_two(counts))
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
            self._met = None
            return None
        if self._met is None or self._met[0] is not group:
            self._met = None  # lets go of the memory of former members
            if self._result is None:
                self._result = self._own.take()
            self._met = group, meet(group, self._layout, self._window, self._result)
        return self._met[1]


def common_power_of_two(counts: Sequence[int]) -> int:
    """The largest that divides all counts: multiplying by it would only change exponents, so it is left out."""
    common = math.gcd(*counts)
    return common & -common
