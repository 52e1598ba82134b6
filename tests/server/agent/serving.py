"""A server for agents and nothing else: the real control channel and the real fleet, without jobs of its own."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec
import zmq.asyncio

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import SAME, Isolation
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.zygote import ONLY_VARIABLE
from edt_server.channel.control import ControlServer
from edt_server.fleet import Fleet
from edt_server.messaging import AgentConnection, read_address, read_struct
from edt_server.settings import Settings
from edt_server.system.processes import is_alive
from edt_server.system.runtime import private_dir
from tests.waiting import LIMIT, until_async


class _Light(Settings):
    """Templates and zygotes leave torch out, which changes nothing here: a worker imports it itself."""

    @property
    def job_environ(self):
        return {**super().job_environ, ONLY_VARIABLE: "edt_sdk.training.script"}


class AgentServer:
    """One start of a server with these hosts of this machine, by name and slots.

    `changes` are the names of the hosts that were offered, each time they changed.
    """

    def __init__(self, folder, isolation=SAME, **hosts):
        self.runtime = private_dir(folder / "r")
        own = {"data_dir": folder / "data", "runtime_dir": self.runtime}
        self.settings = _Light(**own, local_hosts=hosts, isolation=Isolation(kind=isolation))
        self.addresses = self.settings.control_dir / "hosts"
        self.changes = []
        self.fleet = Fleet(self.settings, self._changed)
        self.control = ControlServer(
            self.settings.control_dir,
            on_hello=_none,
            on_report=_none,
            on_progress=lambda job, progress: None,
            on_connected=_none,
            hosts=self.fleet,
        )

    async def _changed(self, there):
        self.changes.append([host.name for host in there])

    async def start(self):
        """Listen and look after the agents, which may have to be started."""
        await self.fleet.open()
        await self.control.start()
        await self.fleet.follow()
        return self

    async def stop(self):
        """End as a server does: its agents go on."""
        await self.fleet.stop()
        await self.control.stop()

    async def connected(self, *names):
        """Wait until the agents of these hosts have greeted this server."""
        for name in names:
            await until_async(lambda name=name: self.fleet._hosts[name].connected and self.identity(name))

    def identity(self, name):
        """The agent that the address file names, None when it has ended."""
        address = read_address(self.addresses, name)
        return address.identity if address is not None and is_alive(address.identity) else None

    def placed(self, orders, *hosts, home=""):
        """Know a job whose supervisor is at home, and prepare these hosts for outposts of it; returns its orders."""
        own = {"data_dir": str(self.settings.data_dir), "isolation": self.settings.isolation}
        orders = msgspec.structs.replace(orders, **own, host=home)
        paths = JobPaths(self.settings.data_dir, orders.owner, orders.job_id)
        for folder in (paths.job_dir, paths.code_dir(""), paths.streams_dir):
            folder.mkdir(parents=True, exist_ok=True)
        self.fleet.attempts.adopt(orders)
        self.fleet.may_span(orders.job_id, hosts)
        return orders

    def end_agents(self):
        """Kill every agent, with all below it."""
        for path in self.addresses.glob("*.json"):
            address = read_struct(path, wire.AgentAddress)
            if address is not None and is_alive(address.identity):
                os.kill(address.identity.pid, signal.SIGKILL)


async def _none(*_):
    return None


class Supervisor:
    """Talks with the agent of a host as a supervisor does: one on this machine, or, with `of`, one on that host."""

    def __init__(self, server, name, *, of=None):
        self.context = zmq.asyncio.Context()
        self.address = read_address(server.addresses, name)
        if of is not None:
            own = read_struct(server.addresses / f"{of}.orders", wire.AgentOrders)
            self.address = msgspec.structs.replace(
                self.address, client_public=own.public_key, client_secret=own.secret_key
            )
        self.connection = AgentConnection(self.context, self.address)
        self.send = self.connection.send

    async def hear(self, kind):
        """The next message of a kind; others are left out."""
        async with asyncio.timeout(LIMIT):
            while True:
                _, message = await self.connection.receive()
                if isinstance(message, kind):
                    return message

    async def close(self):
        await self.connection.close()
        self.context.destroy(linger=0)
