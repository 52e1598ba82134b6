"""A cache of pictures, keyed by their data and look.

A picture is a pure function of its data, so that a cached one is never out of date. The present time is part of the
data. It is rounded to steps of about a pixel (`present`), so that a picture stays the same within a step and a browser
that has it gets a 304.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import TypeVar

from edt_sdk.pictures.parts.look import Look

Data = TypeVar("Data", bound=Hashable)
_KEPT = 64
_STEPS = 480  # about as many as a picture has columns of pixels


class Drawings:
    """Keeps the `kept` pictures that were used last."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        # The data itself is the key. A key of version numbers would be slightly faster, and wrong as soon as one input
        # is forgotten (docs/decisions/028).
        self._texts: OrderedDict[Hashable, str] = OrderedDict()
        self._lock = Lock()

    def drawn(self, draw: Callable[..., str], data: Data, look: Look, **settings: float | bool) -> str:
        """Return `draw(data, look, **settings)`, drawn at most once while it is cached. Blocks while it draws."""
        # Equal time zones can have different names, and a picture shows the name.
        key = (draw, data, look, str(look.zone), *sorted(settings.items()))
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        # Outside the lock: drawing a picture twice costs less than waiting for another picture.
        text = draw(data, look, **settings)
        with self._lock:
            self._texts[key] = text
            while len(self._texts) > self._kept:
                self._texts.popitem(last=False)
        return text


def present(now: float, start: float) -> float:
    """Round `now` down to the last moment that changes a picture which starts at `start`.

    The step is one second for a picture of up to sixteen minutes, and doubles with the length.
    """
    step = 2.0 ** max(0, math.floor(math.log2(max(1.0, (now - start) / _STEPS))))
    return max(start, math.floor(now / step) * step)
