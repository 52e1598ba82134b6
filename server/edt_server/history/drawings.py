"""Pictures drawn lately: whoever asks for one of the same data, in the same look, is given the text there is.

A picture is a pure function of its data, so its data are what it is kept by, and nothing can be out of date. What goes
on by itself, the present, counts in steps of about a pixel (`present`): between two of them a picture stays the same,
and a browser that has it is told so.
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
    """The pictures that were asked for last; at most `kept`."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._texts: OrderedDict[Hashable, str] = OrderedDict()
        self._lock = Lock()

    def drawn(self, draw: Callable[..., str], data: Data, look: Look, **settings: float | bool) -> str:
        """`draw(data, look, **settings)`, drawn at most once while it is kept. Blocks for as long as that takes."""
        # Zones are equal that are called by different names, and a picture names its zone.
        key = (draw, data, look, str(look.zone), *sorted(settings.items()))
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        # Not under the lock: a picture that is drawn twice costs less than one that waits for another.
        text = draw(data, look, **settings)
        with self._lock:
            self._texts[key] = text
            while len(self._texts) > self._kept:
                self._texts.popitem(last=False)
        return text


def present(now: float, start: float) -> float:
    """The last moment that makes a difference in a picture that begins at `start`: `now`, rounded down.

    To whole seconds in a picture of up to sixteen minutes, and to twice as many in one of twice the length.
    """
    step = 2.0 ** max(0, math.floor(math.log2(max(1.0, (now - start) / _STEPS))))
    return max(start, math.floor(now / step) * step)
