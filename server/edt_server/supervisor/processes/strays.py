"""What an agent of a torchrun job has left behind when it ended: gone before its slots count as free.

Its processes die with it, but a moment later, and what they had started may live on. An agent adopts its own orphans;
so those that come to the supervisor are of one that has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time

from edt_server.supervisor.processes.children import Children

log = logging.getLogger(__name__)

PATIENCE = 5.0
_LOOK = 0.005


async def end_what_was_left(children: Children) -> None:
    """Kill and reap orphans until none is left."""
    deadline = time.monotonic() + PATIENCE
    # Only /proc tells when they are gone.
    while children.end_orphans():
        if time.monotonic() > deadline:
            log.warning("processes that an agent left behind do not end")
            return
        await asyncio.sleep(_LOOK)
