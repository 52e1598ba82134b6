"""Waiting for what other processes do."""

from __future__ import annotations

import asyncio

LIMIT = 60


async def until(condition):
    """Wait for the first true value."""
    async with asyncio.timeout(LIMIT):
        while not (value := condition()):
            await asyncio.sleep(0.02)
    return value
