"""GPUs that come and go because another store's jobs are in them: looked at once a second, and told to the plan."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import NoReturn

from edt_server.service.sharing import Sharing
from edt_server.store import StoreError
from edt_server.system.device_claims import DeviceClaims

INTERVAL = 1.0


async def watch_devices(claims: DeviceClaims, sharing: Sharing, *, keep: Callable[[], Awaitable[None]]) -> NoReturn:
    """Offer a GPU that another store's jobs have left, and none that they are in, until cancelled.

    Args:
        claims: who is in which GPU.
        sharing: told to look at the hosts anew.
        keep: gives up the GPUs that our own jobs have left.
    """
    known: set[str] | None = None
    while True:
        await asyncio.sleep(INTERVAL)
        if not sharing.has_gpus:
            continue
        now = set(await asyncio.to_thread(claims.elsewhere))
        if now != known:
            with contextlib.suppress(StoreError):  # said elsewhere; the next look tries again
                await sharing.look_again()
                known = now
        await keep()
