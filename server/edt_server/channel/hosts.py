"""The named hosts of this machine: find or start an agent for each, watch it, and restart it when it has died.

A host is up while the server is connected to its agent. An agent outlives the server, and the next server finds it by
its address file. An agent that does not answer is killed with every process below it, so that a host is up or down and
never half.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import zmq.asyncio

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import AGENT_PROTOCOL, AgentAddress, AgentOrders
from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.messaging import AgentConnection, ConversationLost, read_address, read_stranger
from edt_server.settings import Settings
from edt_server.system.detached import start_detached
from edt_server.system.private_files import make_private_dir
from edt_server.system.processes import ended, is_alive, send_signal
from edt_server.system.slots import Host, find_gpus, usable_cores

log = logging.getLogger(__name__)

PING_INTERVAL = 1.0
# Stopped ones are ended by their guard much sooner.
SILENT_PATIENCE = 15.0
RESTART_PAUSE = 2.0
STRANGER_PATIENCE = 5.0
START_PATIENCE = 30.0
_POLL = 0.02
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z")


class HostLost(EdtError):
    """The host's agent is gone, and a request to it may not have been carried out."""


def check_hosts(hosts: Mapping[str, int]) -> None:
    """Raise Unprocessable when these cannot be hosts: name → slots."""
    for name, slots in hosts.items():
        if not _NAME.match(name):
            raise Unprocessable(
                f"{name!r} cannot be the name of a host.",
                hint="Use 1 to 32 letters, digits, dashes or underscores, the first a letter or digit.",
                field="local_hosts",
            )
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


class Hosts:
    """All named hosts of a server.

    From `follow` on, `changed` gets the hosts that are there each time these change. `stopped` is true from `stop` on.
    """

    def __init__(self, settings: Settings, changed: Callable[[tuple[Host, ...]], Awaitable[None]]) -> None:
        check_hosts(settings.local_hosts)
        self.folder = settings.control_dir / "hosts"
        self._settings = settings
        self._changed = changed
        self._all: tuple[Host, ...] = ()
        self._context = zmq.asyncio.Context()
        self._up: dict[str, AgentConnection] = {}
        self._answers: dict[tuple[str, str], asyncio.Future[wire.SupervisorStarted]] = {}
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._reported: tuple[Host, ...] = ()
        self._started = False
        self.stopped = False

    @property
    def there(self) -> tuple[Host, ...]:
        """Return the hosts that are up now."""
        return tuple(host for host in self._all if host.name in self._up)

    async def start(self) -> None:
        """Find or start the agents. Return when every host is up, or after half a minute."""
        make_private_dir(self.folder)
        self._all = await asyncio.to_thread(local_hosts, self._settings.local_hosts)
        names = {host.name for host in self._all}
        for path in self.folder.glob("*.json"):
            if path.stem not in names:
                self._tasks.append(asyncio.create_task(self._retire(path.stem), name=f"edt retire {path.stem}"))
        for name in names:
            self._tasks.append(asyncio.create_task(self._keep(name), name=f"edt host {name}"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_PATIENCE):
                while len(self._up) < len(names):
                    await self._woken.wait()
        self._reported = self.there

    async def follow(self) -> None:
        """Report changes from now on, and any since `start` returned."""
        self._started = True
        await self._report_changes()

    async def stop(self) -> None:
        """Disconnect. Agents stay as long as a process runs below them."""
        self.stopped = True
        self._wake_waiters()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    async def place(self, preferred: Sequence[str]) -> str | None:
        """Return the first of these hosts that is up, else any. Wait while none is up. None when this server stops."""
        while not self.stopped:
            if self._up:
                return next((name for name in preferred if name in self._up), next(iter(self._up)))
            await self._woken.wait()
        return None

    async def start_supervisor(self, host: str, job: str, launch_file: Path) -> ProcessIdentity:
        """Start a job's supervisor on a host. EdtError when it could not be started.

        HostLost when the host is gone, and with it the supervisor, if it was started.
        """
        connection = self._up.get(host)
        if connection is None:
            raise HostLost(f"Host {host} is gone.")
        answer = self._answers[host, job] = asyncio.get_running_loop().create_future()
        connection.send(job, wire.StartSupervisor(launch_file=str(launch_file)))
        started = await answer
        identity: ProcessIdentity | None = started.identity
        if identity is None:
            raise EdtError(f"Host {host} could not start the supervisor: {started.why}", job=job)
        return identity

    # --- one host -----------------------------------------------------------------------------------------------------

    async def _keep(self, name: str) -> None:
        while True:
            try:
                address = await self._find_or_start(name)
                await self._converse(name, address)
            except (ConversationLost, OSError) as why:
                log.warning("host %s is not there: %s", name, why)
            # A back-off, so that an agent that cannot start does not keep the machine busy.
            await asyncio.sleep(RESTART_PAUSE)

    async def _find_or_start(self, name: str) -> AgentAddress:
        await self._end_stranger(name)
        address = read_address(self.folder, name)
        if address is not None and is_alive(address.identity):
            return address
        process = self._start_agent(name)
        deadline = time.monotonic() + START_PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            address = read_address(self.folder, name)
            if address is not None and is_alive(address.identity):
                log.info("agent of host %s started, pid=%d", name, address.identity.pid)
                return address
            await asyncio.sleep(_POLL)
        raise ConversationLost(f"its agent did not start; see {self.folder / f'{name}.log'}")

    async def _end_stranger(self, name: str) -> None:
        """End an agent of another version, with every process below it, as when a host is lost.

        It does not understand our requests, and no other agent can start on this host beside it. Its jobs are not
        lost: they go on from their checkpoints, here or elsewhere.
        """
        stranger = read_stranger(self.folder, name)
        if stranger is None or not is_alive(stranger.identity):
            return
        log.warning(
            "the agent of host %s is of another version (it speaks protocol %d, this server %d): it is replaced. "
            "Jobs with processes on this host go on from their last checkpoints.",
            name,
            stranger.protocol,
            AGENT_PROTOCOL,
        )
        send_signal(stranger.identity, signal.SIGTERM)
        try:
            async with asyncio.timeout(STRANGER_PATIENCE):
                await ended(stranger.identity)
        except TimeoutError:
            send_signal(stranger.identity, signal.SIGKILL)
            await ended(stranger.identity)

    def _start_agent(self, name: str) -> subprocess.Popen[bytes]:
        orders = AgentOrders(
            host=name,
            address_file=str(self.folder / f"{name}.json"),
            runtime_dir=str(self._settings.runtime_dir),
            interface=self._settings.worker_interface,
        )
        lock = self._settings.runtime_dir / f"host-{name}.lock"
        process = start_detached(
            "edt_server.agent",
            [wire.encode(orders).decode(), str(lock)],
            folder=self.folder,
            log=self.folder / f"{name}.log",
            environ=self._settings.job_environ,
        )
        # The agent outlives this server, but while both live it must be reaped when it ends.
        threading.Thread(target=process.wait, name=f"reap {process.pid}", daemon=True).start()
        return process

    async def _converse(self, name: str, address: AgentAddress) -> None:
        """Exchange messages with the agent until it is lost, which is raised."""
        connection = AgentConnection(self._context, address)
        pinging = asyncio.create_task(self._ping(connection))
        heard = False
        try:
            while True:
                async with asyncio.timeout(SILENT_PATIENCE):
                    job, message = await connection.receive()
                heard = True
                if self._up.get(name) is not connection:
                    self._up[name] = connection
                    await self._report_changes()
                if isinstance(message, wire.SupervisorStarted):
                    answer = self._answers.pop((name, job), None)
                    if answer is not None and not answer.done():
                        answer.set_result(message)
        except TimeoutError:
            if not heard:
                # Not at the first silence, which may be this process's own: it may have been stopped.
                send_signal(address.identity, signal.SIGKILL)
            raise ConversationLost(f"its agent has said nothing for {SILENT_PATIENCE:.0f} s") from None
        except ConversationLost:
            raise ConversationLost("its agent is gone") from None
        finally:
            pinging.cancel()
            there = self._up.pop(name, None) is not None
            for key in [key for key in self._answers if key[0] == name]:
                answer = self._answers.pop(key)
                if not answer.done():
                    answer.set_exception(HostLost(f"Host {name} was lost."))
            await connection.close()
            if there and not self.stopped:
                await self._report_changes()

    async def _ping(self, connection: AgentConnection) -> None:
        while True:
            connection.send("", wire.Ping())
            await asyncio.sleep(PING_INTERVAL)

    async def _report_changes(self) -> None:
        self._wake_waiters()
        if self._started and self._reported != self.there:
            self._reported = self.there
            # An unavailable store must not end the watch. The next change reports all hosts again.
            try:
                await self._changed(self.there)
            except EdtError:
                log.exception("the slots could not be changed")

    def _wake_waiters(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()

    async def _retire(self, name: str) -> None:
        """Let an agent of an earlier configuration end when no process runs below it."""
        await self._end_stranger(name)
        address = read_address(self.folder, name)
        if address is None or not is_alive(address.identity):
            (self.folder / f"{name}.json").unlink(missing_ok=True)
            return
        connection = AgentConnection(self._context, address)
        try:
            connection.send("", wire.Retire())
            while True:
                await connection.receive()
        except ConversationLost:
            log.info("the agent of host %s has ended", name)
        finally:
            await connection.close()
