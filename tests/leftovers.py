"""`EDT_LEFTOVERS=1 make test`: whoever leaves something open is the test that fails.

A socket, a file or a loop in a cycle of references is found when the garbage collector next runs, in whatever test that
is: a failure that names the wrong one, and comes and goes. With this each test is followed by a collection, and what is
found in it is that test's. A seventh of a second a test, so not by default.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Behind all fixtures that end with this test."""
    try:
        yield
    finally:
        found = collected()
    assert not found, f"left open by {item.nodeid}, or by a fixture that ended with it:\n" + "\n".join(found)


def collected() -> list[str]:
    """What is wrong with what nobody refers to any more."""
    found: list[str] = []
    # The text at once: to keep the object would be to bring it back.
    before, sys.unraisablehook = (
        sys.unraisablehook,
        lambda wrong: found.append(f"{wrong.exc_value!r} in {wrong.object!r}"),
    )
    try:
        _forget_closed_loops()
        gc.collect()
    finally:
        sys.unraisablehook = before
    return found


def _forget_closed_loops() -> None:
    """Tornado holds on to a loop that asyncio has closed, with its streams, until the next one is made."""
    ioloop = sys.modules.get("tornado.ioloop")
    if ioloop is not None:
        loops = ioloop.IOLoop._ioloop_for_asyncio
        for loop in [each for each in loops if each.is_closed()]:
            del loops[loop]
