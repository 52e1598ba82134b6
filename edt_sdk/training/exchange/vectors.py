"""The flat vectors of one process: taken for an update, given back after it, used again.

Fresh memory costs more than the sum it is for. On a host's own memory they lie in this process's window, where the
members beside it can read them (`shared_exchange.py`); on a GPU, or where there is no such memory, anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from edt_sdk.training.exchange.layout import Flat, Layout
from edt_sdk.training.exchange.memory_window import Window, touch


class Vectors:
    """All vectors of a layout.

    Args:
        layout: of the vectors.
        window: takes their memory; None for none.
    """

    def __init__(self, layout: Layout, window: Window | None) -> None:
        self._layout = layout
        self._window = window
        self._free: list[Flat] = []
        self._made = 0
        self._making = threading.Lock()

    def take(self) -> Flat:
        """A vector of whatever was in it before; what lies between the entries is zero."""
        while True:
            # An optimizer or a hook may have kept a gradient, and would find the next one in it: such a vector waits.
            for number, vector in enumerate(self._free):
                if vector.alone:
                    return self._free.pop(number)
            if not self._making.locked():
                return self._make()
            # One is on its way in another thread, its pages half provided: waiting is less than beginning another.
            with self._making:
                pass

    def give_back(self, vectors: Iterable[Flat]) -> None:
        """Nobody adds to them or sends them any more."""
        self._free.extend(vectors)

    def expect(self, count: int) -> None:
        """Have so many in all, their pages provided by the system. For another thread than the one that takes them."""
        with self._making:
            while self._window is not None and self._made < count:
                self._free.append(self._make(touched=True))

    def _make(self, *, touched: bool = False) -> Flat:
        self._made += 1
        if self._window is None:
            return self._layout.zeros()
        start, memory = self._window.allocate(self._layout.nbytes)
        if touched:
            touch(memory)
        return self._layout.within(memory, start)
