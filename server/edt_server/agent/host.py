"""Run the agent of a host: it does what the server orders, and starts outposts for supervisors of other hosts.

It decides nothing. What it starts follows from orders of the server (`uplink.py`, `jobs.py`), and everything below it
is killed with it (`guard.py`). When it starts, all that its host had in memory counts as lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import AGENT_PROTOCOL, MACHINE, AgentAddress, AgentOrders
from edt_sdk.schemas.wire.control import ServerAddress
from edt_server.agent.below import ProcessesBelow
from edt_server.agent.jobs import JobsHere
from edt_server.agent.uplink import Uplink, memory
from edt_server.messaging import Gatekeeper, listen, send_now, sender_of
from edt_server.supervisor.processes.memory import forget_host
from edt_server.system import bubblewrap
from edt_server.system.host_kind import kinds_here
from edt_server.system.private_files import keep_private, make_private_dir
from edt_server.system.processes import identify
from edt_server.system.slots import find_gpus, usable_cores

log = logging.getLogger(__name__)

LOOK_INTERVAL = 0.5
# Seconds that jobs have to leave once the machine is to be taken away. Slurm and Kubernetes give 120.
NOTICE = 110.0
# Seconds in which another host answers, also when a packet is lost.
_PROBE = 3.0


class HostAgent:
    """The agent of a host."""

    def __init__(self, orders: AgentOrders) -> None:
        self._orders = orders
        self._data_dir = Path(orders.data_dir)
        self._peers_dir = self._data_dir / "control" / "hosts"
        self._identity = identify(os.getpid())
        self._context = zmq.asyncio.Context()
        self._gatekeeper = Gatekeeper(self._context)
        self._interface = self._endpoint = ""
        self._socket: zmq.asyncio.Socket | None = None
        self._peers: set[str] = set()
        self._endpoints: dict[str, str] = {}
        self._unwritten: dict[Path, bytes] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._kinds = "", ""
        self._unsandboxed = ""
        self._retired = False
        self._ends_at: float | None = None
        self._over = asyncio.Event()
        self._below = ProcessesBelow(orders.host, self._supervisor_ended)
        self._uplink = Uplink(self._context, orders, hello=self._hello, hear=self._hear, lost=self._disconnected)
        self._jobs = JobsHere(orders, self._uplink, self._below, lambda: self._interface)

    async def run(self) -> None:
        """Serve until no server needs this agent."""
        # A host is present or lost, never half: no state in memory may outlive it (decision 015).
        forget_host(self._orders.host, Path(self._orders.runtime_dir))
        if not self._orders.shared:
            self._kinds = await asyncio.to_thread(kinds_here, sys.executable, self._data_dir / "control")
        # Before SIGCHLD is handled: to look for orphans after a greeting delays what the server sends next.
        self._unsandboxed = _without_sandbox()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_end)
        loop.add_signal_handler(signal.SIGCHLD, self._below.reap)
        self._gatekeeper.start()
        self._spawn(self._uplink.run(), "uplink")
        self._spawn(self._look(), "look")
        try:
            await self._over.wait()
        finally:
            # The guard ends what is left.
            self._below.templates.stop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._gatekeeper.stop()
            self._context.destroy(linger=0)

    # --- the server ---------------------------------------------------------------------------------------------------

    def _hello(self, server: ServerAddress) -> wire.HostHello:
        # Its supervisors may find this agent before the list of peers arrives here.
        self._gatekeeper.admit(_peer(MACHINE), server.public_key)
        if self._socket is None:
            self._interface = self._orders.interface or _address_towards(server.endpoint)
            keys = self._orders.public_key, self._orders.secret_key
            self._socket, self._endpoint = listen(self._context, self._interface, keys)
            self._spawn(self._serve(self._socket), "serve")
        if not self._orders.shared:
            # Supervisors on this host dial the same server.
            make_private_dir(self._peers_dir)
            self._write(self._data_dir / "control" / "server.json", msgspec.json.encode(server))
        return wire.HostHello(
            protocol=AGENT_PROTOCOL,
            wheel=version("jupyter-edt"),
            identity=self._identity,
            endpoint=self._endpoint,
            cores=usable_cores(),
            gpus=find_gpus(),
            offers=self._orders.slots,
            memory=memory(),
            kind=self._kinds[0],
            portable_kind=self._kinds[1],
            below=tuple(self._below.attempts()),
            jobs=self._jobs.kept(),
            sandbox=self._unsandboxed and _without_sandbox(),  # it may have been installed since
        )

    def _hear(self, message: wire.ToHost, data: bytes) -> None:
        match message:
            case wire.HostWelcome(outdated=outdated):
                for each in outdated:
                    log.warning("job %s is over, or went on elsewhere: attempt %d ends here", each.job, each.attempt)
                    self._spawn(self._jobs.end_attempt(each.job, each.attempt), f"end {each.job}")
                if self._ends_at is not None:
                    # This server may not be the one that was told.
                    self._tell_notice(self._ends_at)
            case wire.Heard(probe=names):
                for name in self._endpoints.keys() & {*names, *self._uplink.unreached}:
                    self._spawn(self._try(name, self._endpoints[name]), f"try {name}")
            case wire.HostPeers(peers=peers):
                self._know_peers(peers)
            case wire.Prepare():
                self._spawn(self._jobs.prepare(message), f"prepare {message.launch.job_id}")
            case wire.Chunk():
                self._jobs.given(message, data)
            case wire.Taken():
                self._jobs.taken(message)
            case wire.Collect():
                self._spawn(self._jobs.collect(message), f"collect {message.job}")
            case wire.Forget(job=job, owner=owner):
                self._spawn(self._jobs.forget(job, owner), f"forget {job}")
            case wire.Retire(at_once=at_once):
                self._retired = True
                if at_once:
                    log.warning("this host was removed, and ends with all that runs here")
                    self._over.set()

    def _disconnected(self) -> None:
        self._jobs.disconnected()

    def _supervisor_ended(self, job: str, attempt: int, code: int) -> None:
        self._uplink.send(wire.SupervisorEnded(job=job, attempt=attempt, code=code))

    def _know_peers(self, peers: tuple[wire.HostPeer, ...]) -> None:
        """Admit the hosts that there are, and tell the supervisors of this one where they are."""
        there = {peer.host for peer in peers}
        for gone in self._peers - there:
            self._gatekeeper.forget(_peer(gone))
            if not self._orders.shared:
                path = self._peers_dir / f"{gone}.json"
                self._unwritten.pop(path, None)
                path.unlink(missing_ok=True)
        self._peers = there
        self._endpoints = {
            each.host: each.endpoint for each in peers if each.endpoint and each.host != self._orders.host
        }
        self._uplink.unreached &= self._endpoints.keys()
        for peer in peers:
            self._gatekeeper.admit(_peer(peer.host), peer.public_key)
            if peer.endpoint and not self._orders.shared and peer.host != self._orders.host:
                address = AgentAddress(
                    protocol=AGENT_PROTOCOL,
                    host=peer.host,
                    endpoint=peer.endpoint,
                    identity=peer.identity,
                    public_key=peer.public_key,
                    client_public=self._orders.public_key,
                    client_secret=self._orders.secret_key,
                    shared=False,
                )
                self._write(self._peers_dir / f"{peer.host}.json", wire.encode(address))

    async def _try(self, name: str, endpoint: str) -> None:
        """Try to connect to the agent of another host, which shows whether its workers can be reached."""
        address, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        try:
            async with asyncio.timeout(_PROBE):
                _, writer = await asyncio.open_connection(address.strip("[]"), int(port))
            writer.close()
        except OSError:  # TimeoutError is one
            self._uplink.unreached.add(name)
        else:
            self._uplink.unreached.discard(name)

    def _write(self, path: Path, data: bytes) -> None:
        """Write an address, or write it as soon as there is room: a full disk must not end what runs here."""
        try:
            keep_private(path, data)
        except OSError as wrong:
            if path not in self._unwritten:
                log.warning("%s cannot be written: %s", path.name, wrong)
            self._unwritten[path] = data
        else:
            self._unwritten.pop(path, None)

    # --- supervisors of other hosts -----------------------------------------------------------------------------------

    async def _serve(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart(copy=False)
            sender = sender_of(frames[-1])
            if len(frames) not in (3, 4) or sender is None:
                continue
            peer, job, data = frames[0].bytes, frames[1].bytes.decode("utf-8", "replace"), frames[2].bytes
            try:
                await self._receive(sender, peer, job, data, frames[3].bytes if len(frames) == 4 else b"")
            except (EdtError, OSError, msgspec.MsgspecError) as wrong:
                # One job's error must not affect the others.
                log.warning("a message could not be dealt with, job=%s: %s", job, wrong)

    async def _receive(self, sender: str, peer: bytes, job: str, data: bytes, content: bytes) -> None:
        serves = self._below.serves(job, peer)
        match wire.decode_to_agent(data):
            case wire.StartOutpost() as order:
                # Not in this loop: the orders of the job may be on their way, and the outpost before it has to end.
                self._spawn(self._start_outpost(sender, peer, job, order), f"outpost {job}")
            case wire.PutFile() as put if serves:
                self._send(peer, job, wire.encode(await self._jobs.put(job, put, content)))
            case _ if serves:
                self._below.tell(job, data)
            case message:
                log.warning("no outpost for a %s, job=%s", type(message).__name__, job)

    async def _start_outpost(self, sender: str, peer: bytes, job: str, order: wire.StartOutpost) -> None:
        # Its orders come from the server, at about the same time. A supervisor that has waited for long asks again.
        here = await self._jobs.of(job, order.attempt)
        # Fencing: the supervisor of an older attempt must not end the workers of a newer one.
        why = "" if here.attempt == order.attempt else f"attempt {here.attempt} of the job is under way here"
        # Supervisors on hosts with the server's files have its key.
        why = why or here.refused
        if sender not in (_peer(here.home), _peer(MACHINE)):
            why = "the job's supervisor is on another host"
        if why:
            self._send(peer, job, wire.encode(wire.OutpostStarted(pid=0, why=why)))
            return
        paths = here.tree.paths
        await self._below.run_outpost(order, here.launch, paths, peer, lambda data: self._send(peer, job, data))

    def _send(self, peer: bytes, job: str, data: bytes) -> None:
        # A client that is gone is ignored. The next client gets what was lost with it.
        wrong = None if self._socket is None else send_now(self._socket, peer, job.encode(), data)
        if wrong is not None:
            log.warning("not sent, job=%s: %s", job, wrong)

    def _told_to_end(self) -> None:
        """Give up the slots of this machine, and end when nothing runs here. End at once when told a second time."""
        if self._ends_at is not None or self._orders.shared or self._below.idle():
            self._over.set()
            return
        log.warning("this machine will be taken away: its jobs leave at their next update")
        self._ends_at = time.monotonic() + NOTICE
        self._tell_notice(self._ends_at)

    def _tell_notice(self, ends_at: float) -> None:
        seconds = max(0.0, ends_at - time.monotonic())
        self._uplink.send(wire.HostNotice(seconds=seconds, why="Its machine will be taken away."))

    # --- its life -----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            self._below.reap()
            self._below.kill_stopped()
            for path, data in tuple(self._unwritten.items()):
                self._write(path, data)
            patience = self._orders.idle
            unneeded = self._retired or (patience is not None and self._uplink.silence > patience)
            if self._ends_at is not None:
                late = self._ends_at - time.monotonic()
                if late < 0 or self._below.idle():
                    await self._jobs.flushed(late)
                    self._over.set()
            elif unneeded and self._below.idle():
                log.info("the agent of host %s is not needed any more", self._orders.host)
                self._over.set()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s ended", task.get_name(), exc_info=task.exception())
            if task.get_name() in ("serve", "look", "uplink"):
                self._over.set()  # the server notices, and who has started this agent starts another


def main(orders_file: str) -> int:
    """Run the agent that follows these orders."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    orders = msgspec.json.decode(Path(orders_file).read_bytes(), type=AgentOrders)
    asyncio.run(HostAgent(orders).run())
    return 0


def _peer(host: str) -> str:
    """Return the name under which the key of a host's supervisors is admitted."""
    return f"peer {host}"


def _without_sandbox() -> str:
    """Return why jobs cannot run in a sandbox here, and what helps. "" where they can. Blocks for some milliseconds."""
    try:
        bubblewrap.check()
    except EdtError as why:
        return f"{why.message} {why.hint} Then start its agent again."
    return ""


def _address_towards(server: str) -> str:
    """Return the address by which this machine reaches the server, which others then reach it by."""
    host, _, port = server.removeprefix("tcp://").rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
        probe.connect(found[4])  # sends nothing
        address: str = probe.getsockname()[0]
        return address
