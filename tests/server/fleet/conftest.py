"""A fleet of machines that are played by the test, on a clock that the test sets."""

from __future__ import annotations

import time
from types import SimpleNamespace

import msgspec
import pytest
import pytest_asyncio

from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.fleet import connection, fleet
from tests.server.fleet.machines import Server


@pytest_asyncio.fixture
async def server(tmp_path):
    """A fleet that machines can join. Only what the test says happens."""
    made = await Server(tmp_path / "server").open()
    yield made
    await made.fleet.stop()


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock of the fleet, which stands still: `clock.now`."""
    moved = SimpleNamespace(now=1000.0)
    stand_in = SimpleNamespace(time=time.time, monotonic=lambda: moved.now)
    for module in (connection, fleet):
        monkeypatch.setattr(module, "time", stand_in)
    return moved


@pytest.fixture
def placed(orders, server):
    """The orders of a job whose supervisor is on host a."""
    found = msgspec.structs.replace(orders, host="a", data_dir=str(server.settings.data_dir), spreads=True)
    JobPaths(server.settings.data_dir, found.owner, found.job_id).job_dir.mkdir(parents=True)
    return found
