"""The agents of this machine: find or start one for each named host, and start it again when it has died.

Such an agent outlives the server, and dials the next one. One that does not do so is killed with every process below
it, so that a host is up or down and never half. Its keys are made here, and stay in a file of this account.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.hosts import check_host_name
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import AGENT_PROTOCOL, AgentOrders
from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.fleet.registry import LOCAL, HostRecord
from edt_server.messaging import key_pair, read_struct
from edt_server.settings import Settings
from edt_server.system.detached import start_detached
from edt_server.system.private_files import write_private
from edt_server.system.processes import ended, is_alive, send_signal
from edt_server.system.slots import Host, find_gpus, usable_cores

log = logging.getLogger(__name__)

RESTART_PAUSE = 2.0
# A stopped agent is ended by its guard much sooner.
SILENT_PATIENCE = 15.0
STRANGER_PATIENCE = 5.0
IDLE = 20.0
_POLL = 0.05


class _Left(msgspec.Struct, frozen=True, kw_only=True):
    """What every version of an agent's address file has."""

    protocol: int
    identity: ProcessIdentity


def check_hosts(hosts: Mapping[str, int]) -> None:
    """Raise Unprocessable when these cannot be hosts: name → slots."""
    for name, slots in hosts.items():
        check_host_name(name, "local_hosts")
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise Unprocessable(f"The host {name!r} cannot offer {slots!r} slots.", field="local_hosts")


def local_hosts(hosts: Mapping[str, int], gpus: Sequence[int] | None = None) -> tuple[Host, ...]:
    """Return what each named host (name → slots) has: its share of the machine's GPUs, in order, or of its cores."""
    left = list(find_gpus() if gpus is None else gpus)
    cores, total = usable_cores(), sum(hosts.values())
    found = []
    for name, count in hosts.items():
        own, left = left[:count], left[count:]
        found.append(Host(name, tuple(own), max(1, cores * count // total), count))
    return tuple(found)


class LocalAgents:
    """The agents of this machine, by the names of `settings.local_hosts`, with their files in `folder`."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        check_hosts(settings.local_hosts)
        self.names = tuple(settings.local_hosts)
        self._settings = settings
        self._folder = folder

    def resources(self) -> dict[str, Host]:
        """Return what each has. Blocks."""
        return {host.name: host for host in local_hosts(self._settings.local_hosts)} if self.names else {}

    def record(self, host: Host, known: HostRecord | None, provider: str = LOCAL) -> HostRecord:
        """Return the record of a host of this machine, with the keys of its living agent, else with new ones."""
        orders = read_struct(self._orders_file(host.name), AgentOrders)
        alive = known is not None and orders is not None and known.public_key == orders.public_key
        if not alive or orders is None:
            public, secret = key_pair()
            orders = AgentOrders(
                host=host.name,
                data_dir=str(self._settings.data_dir),
                runtime_dir=str(self._settings.runtime_dir),
                public_key=public,
                secret_key=secret,
                shared=True,
                interface=self._settings.worker_interface,
                slots=host.offers,
                idle=IDLE,
            )
        orders = msgspec.structs.replace(orders, slots=host.offers, interface=self._settings.worker_interface)
        write_private(self._orders_file(host.name), wire.encode(orders))
        return HostRecord(
            name=host.name,
            public_key=orders.public_key,
            provider=provider,
            shared=True,
            joined=time.time() if known is None else known.joined,
            # It is started now, or was there all along.
            up=True,
            draining=known is not None and known.draining,
            cores=host.cores,
            gpus=host.gpus,
            offers=host.offers,
            kind="" if known is None else known.kind,
        )

    async def keep(self, name: str) -> None:
        """Have an agent for the host, whatever ends it, until cancelled."""
        while True:
            try:
                identity = await self._find_or_start(name)
                if identity is not None:
                    await ended(identity)
                    log.warning("the agent of host %s has ended", name)
            except OSError as why:
                log.warning("the agent of host %s could not be started: %s", name, why)
            # A back-off, so that an agent that cannot start does not keep the machine busy.
            await asyncio.sleep(RESTART_PAUSE)

    def kill(self, name: str) -> None:
        """Kill the agent of a host that is lost: with it everything below it ends."""
        left = read_struct(self._address_file(name), _Left)
        if left is not None:
            send_signal(left.identity, signal.SIGKILL)

    async def gone(self, name: str) -> None:
        """Return when the agent of a host has ended. One of another version is ended."""
        left = read_struct(self._address_file(name), _Left)
        if left is not None and is_alive(left.identity):
            if left.protocol != AGENT_PROTOCOL:
                await self._end_stranger(name, left)
            await ended(left.identity)

    async def _end_stranger(self, name: str, left: _Left) -> None:
        """End an agent of another version, with every process below it, as when a host is lost.

        It does not understand this server, and no other agent can start on this host beside it. Its jobs are not lost:
        they go on from their checkpoints, here or elsewhere.
        """
        log.warning(
            "the agent of host %s is of another version (it speaks protocol %d, this server %d): it is replaced. "
            "Jobs with processes on this host go on from their last checkpoints.",
            name,
            left.protocol,
            AGENT_PROTOCOL,
        )
        send_signal(left.identity, signal.SIGTERM)
        try:
            async with asyncio.timeout(STRANGER_PATIENCE):
                await ended(left.identity)
        except TimeoutError:
            send_signal(left.identity, signal.SIGKILL)
            await ended(left.identity)

    async def _find_or_start(self, name: str) -> ProcessIdentity | None:
        left = read_struct(self._address_file(name), _Left)
        if left is not None and is_alive(left.identity):
            if left.protocol == AGENT_PROTOCOL:
                return left.identity
            await self._end_stranger(name, left)
        process = self._start(name)
        deadline = time.monotonic() + SILENT_PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            # The server writes it when the agent has greeted it.
            left = read_struct(self._address_file(name), _Left)
            if left is not None and left.protocol == AGENT_PROTOCOL and is_alive(left.identity):
                log.info("agent of host %s started, pid=%d", name, left.identity.pid)
                return left.identity
            await asyncio.sleep(_POLL)
        if process.poll() is None:
            log.warning("the agent of host %s is silent and is ended; see %s", name, self._folder / f"{name}.log")
            process.kill()
        return None

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        lock = self._settings.runtime_dir / f"host-{name}.lock"
        process = start_detached(
            "edt_server.agent",
            [str(self._orders_file(name)), str(lock)],
            folder=self._folder,
            log=self._folder / f"{name}.log",
            environ=self._settings.job_environ,
        )
        # The agent outlives this server, but while both live it must be reaped when it ends.
        threading.Thread(target=process.wait, name=f"reap {process.pid}", daemon=True).start()
        return process

    def _orders_file(self, name: str) -> Path:
        return self._folder / f"{name}.orders"

    def _address_file(self, name: str) -> Path:
        return self._folder / f"{name}.json"
