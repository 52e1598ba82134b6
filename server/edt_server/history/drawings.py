"""A cache of pictures, keyed by their data and look.

A picture is a pure function of its data, so that a cached one is never out of date. The present time is part of the
data. It is rounded to steps of about a pixel (`present`), so that a picture stays the same within a step and a browser
that has it gets a 304.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TypeVar

from edt_sdk.pictures.parts.look import Look

Data = TypeVar("Data", bound=Hashable)
_KEPT = 64
_STEPS = 480  # about as many as a picture has columns of pixels


class Drawings:
    """Keeps the `kept` pictures that were used last."""

    def __init__(self, kept: int = _KEPT) -> None:
        # The data itself is the key. A key of version numbers would be slightly faster, and wrong as soon as one input
        # is forgotten (docs/decisions/028). Drawing a picture twice at a time costs less than waiting for another one.
        self._cached = lru_cache(maxsize=kept)(_draw)

    def drawn(self, draw: Callable[..., str], data: Data, look: Look, **settings: float | bool) -> str:
        """Return `draw(data, look, **settings)`, drawn at most once while it is cached. Blocks while it draws."""
        # Equal time zones can have different names, and a picture shows the name.
        return self._cached(draw, data, look, str(look.zone), **settings)


def _draw(draw: Callable[..., str], data: Hashable, look: Look, zone: str, **settings: float | bool) -> str:
    return draw(data, look, **settings)


def present(now: float, start: float) -> float:
    """Round `now` down to the last moment that changes a picture which starts at `start`.

    The step is one second for a picture of up to sixteen minutes, and doubles with the length.
    """
    step = 2.0 ** max(0, math.floor(math.log2(max(1.0, (now - start) / _STEPS))))
    return max(start, math.floor(now / step) * step)
