"""Choose how the gradients of an update are summed, and in which memory they lie.

Members that can all read each other's memory do so (`shared_exchange.py`). Where there are several hosts, those of each
host do, and the sums of the hosts travel (`hosts_exchange.py`). Members that are alone on their hosts, and GPUs, send
everything (`group_exchange.py`). The members agree on it when they `meet`, either long before they need it or at the
first update of a group. Every exchange raises RuntimeError when a member is gone. This module knows neither models nor
steps.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence

from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.group_exchange import Exchange, Scratch
from edt_sdk.training.exchange.hosts_exchange import HostsExchange
from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.memory_window import Address, Window, open_window, touch
from edt_sdk.training.exchange.shared_exchange import Neighbour, Neighbours, Result, SharedExchange, meet

AnyExchange = Exchange | SharedExchange


class Vectors:
    """Pools the flat vectors of a process: taken for an update, given back after it, reused.

    New memory costs more than the sum it is for. On a host the vectors lie in the window of this process, where the
    other members can read them. On a GPU, or without a window, they lie anywhere.
    """

    def __init__(self, layout: Layout, window: Window | None) -> None:
        self._layout = layout
        self._window = window
        self._free: list[Flat] = []
        self._made = 0
        self._making = threading.Lock()

    def take(self) -> Flat:
        """Return a vector with undefined entries. The gaps between the entries are zero."""
        while True:
            # The one used last, so that the others need no memory. A kept gradient of an optimizer or a hook still
            # points into its vector and would see the next values. Skip it.
            for number in reversed(range(len(self._free))):
                if self._free[number].alone:
                    return self._free.pop(number)
            if not self._making.locked():
                return self._make()
            # The other thread is creating a vector, and its pages are half provided. Waiting is cheaper than starting
            # another.
            with self._making:
                pass

    def give_back(self, vectors: Iterable[Flat]) -> None:
        """Put vectors back that no code adds to or sends any more."""
        self._free.extend(vectors)

    def expect(self, count: int) -> None:
        """Create vectors until there are `count`, with their pages provided. For another thread than the training's."""
        with self._making:
            while self._window is not None and self._made < count:
                self._free.append(self._make(touched=True))

    def release(self) -> None:
        """Give the pages of all unused vectors back to the kernel, which provides them anew when needed."""
        idle = [vector for vector in self._free if vector.alone]
        self._free = [vector for vector in self._free if not vector.alone]
        if idle and self._window is not None:
            # The kernel takes its time for it.
            threading.Thread(target=self._emptied, args=(self._window, idle), daemon=True).start()

    def _emptied(self, window: Window, vectors: list[Flat]) -> None:
        for vector in vectors:
            assert vector.start is not None
            window.release(vector.start, self._layout.nbytes)
        self._free[:0] = vectors

    def _make(self, *, touched: bool = False) -> Flat:
        self._made += 1
        if self._window is None:
            # Zeros, because the padding takes part in every sum and must stay finite.
            return self._layout.zeros()
        start, memory = self._window.allocate(self._layout.nbytes)
        if touched:
            touch(memory)
        return self._layout.within(memory, start)


class Exchanges:
    """Creates the exchange of each update in one process."""

    def __init__(self, layout: Layout, *, fast: bool) -> None:
        self._layout = layout
        self._fast = fast
        self._window = open_window() if layout.on_cpu else None
        self._own = Vectors(layout, self._window)
        # A vector in transfer when a member dies cannot be reused, so sent vectors have a pool apart from the window.
        self._sent = Vectors(layout, None)
        self._result = None if self._window is None else Result(layout, self._window)
        self._met: tuple[Group, Neighbours | None] | None = None
        # One entry per announced group, oldest first. A second generation may be announced before the first update of
        # the one before. All members of that one met ahead, so a member that met again would wait for nobody.
        self._ahead: dict[Group, Neighbours | None] = {}
        self._known: Mapping[Address, Neighbour] = {}
        self._scratch = Scratch()
        self._world = 0
        self._generation = 0

    def meet(self, group: Group) -> None:
        """Open the windows of a group before its first update, while the previous group still trains. One other thread.

        Either all members of the group do so, or none.
        """
        if group.world > 1 and self._layout.on_cpu:
            self._ahead[group] = self._look_at(group)

    def expect(self, vectors: int) -> None:
        """Provide the memory that a member needs for its vectors, while another thread trains."""
        self._own.expect(vectors)

    def vectors(self, group: Group | None) -> Vectors:
        """Return the pool for the vectors of an update in this group. None where the group is not known yet."""
        send = group is not None and group.world > 1 and self._neighbours(group) is None
        return self._sent if send else self._own

    def unit(self, counts: Sequence[int]) -> int:
        """Return the common divisor of all weights of an update. In mode `fast` shards of equal size weigh 1."""
        common = math.gcd(*counts)
        # A power of two only changes exponents, so weights can leave it out without a change of bits.
        return common if self._fast else common & -common

    def divisor(self, counts: Sequence[int]) -> float:
        """Return the divisor for the sum of gradients times weights."""
        return float(sum(counts) // self.unit(counts))

    def between(self, group: Group, counts: Sequence[int], vectors: Sequence[Flat], sums: Sequence[int]) -> AnyExchange:
        """Create the exchange of an update, which has not sent anything yet. Arguments as for `Exchange`."""
        divisor = self.divisor(counts)
        neighbours = self._neighbours(group)
        if group.generation != self._generation:
            # Fewer members need more vectors each. After a growth some are left over.
            self._generation = group.generation
            self._own.release()
            self._sent.release()
        own = [vectors[number] for number in sums]
        if neighbours is not None and len(neighbours.hosts) == 1:
            return SharedExchange(neighbours, counts, divisor, own, vectors[0], self._fast)
        # Scratch lengths depend on the number of ranks, so old ones would never be used again.
        if group.world != self._world:
            self._world = group.world
            self._scratch.clear()
        if neighbours is not None:
            return HostsExchange(neighbours, counts, divisor, own, vectors[0], self._fast, self._scratch)
        return Exchange(
            group, self._layout, counts, divisor, vectors, sums, fast=self._fast, scratch=self._scratch
        )  # fmt: skip

    def _neighbours(self, group: Group) -> Neighbours | None:
        if group.world == 1 or not self._layout.on_cpu:
            self._met, self._known = None, {}
            return None
        if self._met is None or self._met[0] is not group:
            self._met = group, self._ahead[group] if group in self._ahead else self._look_at(group)
            self._forget_until(group)
            # Releases the mapped memory of former members.
            self._known = {} if self._met[1] is None else self._met[1].known
        return self._met[1]

    def _forget_until(self, group: Group) -> None:
        """Release what was opened ahead for this group and older ones, which never have an update again."""
        if group in self._ahead:
            # A list, because another thread may announce a newer group in the meantime.
            for older in list(self._ahead):
                del self._ahead[older]
                if older is group:
                    break

    def _look_at(self, group: Group) -> Neighbours | None:
        return meet(group, self._layout, self._window, self._result, self._known)
