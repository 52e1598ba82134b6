"""Wait for a condition, with a deadline and a message that names what did not happen.

The pause between two looks grows, because a look often asks a server: fifty looks a second take a whole core from the
processes that the test waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# Seconds for what hangs, on a machine with much else to do.
LIMIT = 180.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25


def until(
    condition: Callable[[], Any],
    what: str = "the condition",
    limit: float = LIMIT,
    *,
    sleep: Callable[[float], object] = time.sleep,
) -> Any:
    """Return the first true value of `condition`, or fail after `limit` seconds with `what` was expected."""
    for pause in _pauses(what, limit):
        if value := condition():
            return value
        sleep(pause)


async def until_async(
    condition: Callable[[], Any],
    what: str = "the condition",
    limit: float = LIMIT,
    *,
    ignoring: tuple[type[Exception], ...] = (),
) -> Any:
    """Do the same without blocking the loop; `condition` may be a coroutine function, and may raise `ignoring`."""
    for pause in _pauses(what, limit):
        with contextlib.suppress(*ignoring):
            value = condition()
            if value := await value if inspect.isawaitable(value) else value:
                return value
        await asyncio.sleep(pause)


def _pauses(what: str, limit: float) -> Iterator[float]:
    deadline = time.monotonic() + limit
    pause, last = _FIRST_PAUSE, False
    while not last:
        # One more look after the deadline: this process may have been the one that did not run.
        last = time.monotonic() > deadline
        yield pause
        pause = min(1.25 * pause, _LONGEST_PAUSE)
    pytest.fail(f"waited {limit:.0f} s in vain for {what}")
