"""Pauses between two looks at what another process does: short at first, then longer.

A look often asks a server, which works for its answer as long as who asks. Fifty looks a second take a whole core from
what is being waited for, and the slower the machine, the longer they do.
"""

from __future__ import annotations

from collections.abc import Iterator

FIRST = 0.02
LONGEST = 0.25


def pauses() -> Iterator[float]:
    """Seconds to wait before the next look, without end: from 0.02 to 0.25 in the first second and a half."""
    pause = FIRST
    while True:
        yield pause
        pause = min(1.25 * pause, LONGEST)
