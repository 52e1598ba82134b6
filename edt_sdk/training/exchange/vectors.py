"""Pool the flat vectors of a process: taken for an update, given back after it, reused.

New memory costs more than the sum it is for. On a host the vectors lie in the window of this process, where the other
members can read them (`shared_exchange.py`). On a GPU, or without a window, they lie anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.memory_window import Window, touch


class Vectors:
    """Pools all vectors of a layout.

    Args:
        layout: of the vectors.
        window: provides their memory. None for ordinary memory.
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
            # A kept gradient of an optimizer or a hook still points into its vector and would see the next values. Skip
            # it.
            for number, vector in enumerate(self._free):
                if vector.alone:
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

    def _make(self, *, touched: bool = False) -> Flat:
        self._made += 1
        if self._window is None:
            # Zeros, because the padding takes part in every sum and must stay finite.
            return self._layout.zeros()
        start, memory = self._window.allocate(self._layout.nbytes)
        if touched:
            touch(memory)
        return self._layout.within(memory, start)
