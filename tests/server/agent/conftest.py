"""Servers for agents that follow each other in one folder; every agent that is left is ended."""

from __future__ import annotations

import pytest_asyncio

from edt_server.supervisor.processes.memory import forget_host
from tests.server.agent.serving import AgentServer, Supervisor
from tests.waiting import until_async


@pytest_asyncio.fixture
async def serve(tmp_path):
    """Starts a server with hosts, by name and slots."""
    made = []

    async def begin(**hosts):
        made.append(AgentServer(tmp_path, **hosts))
        return await made[-1].start()

    yield begin
    for server in made:
        await server.stop()
    for server in made:
        names = [path.stem for path in server.addresses.glob("*.json")]
        server.end_agents()
        for name in names:
            await until_async(lambda server=server, name=name: server.identity(name) is None)
            forget_host(name, server.runtime)


@pytest_asyncio.fixture
async def supervise():
    """Opens conversations with the agents of hosts."""
    made = []

    async def begin(server, name, **others):
        await server.connected(name)
        made.append(Supervisor(server, name, **others))
        return made[-1]

    yield begin
    for supervisor in made:
        await supervisor.close()
