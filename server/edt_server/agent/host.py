"""Run the agent of a host: it starts supervisors and outposts below itself, reaps them, and forwards messages to them.

It decides nothing. What it starts follows from orders of the server (`uplink.py`), and everything below it is killed
with it (`guard.py`). When it starts, all that its host had in memory counts as lost. On a host without the
server's files it fetches those of a job before the job (`files.py`), and sends what the job writes (`spool.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import AGENT_PROTOCOL, AgentAddress, AgentOrders
from edt_sdk.schemas.wire.control import Launch, ServerAddress
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.agent.files import HostFiles
from edt_server.agent.guard import STOPPED_PATIENCE, state_of
from edt_server.agent.orders import localized
from edt_server.agent.spool import Spool
from edt_server.agent.uplink import Uplink, memory
from edt_server.files import job_trees
from edt_server.files.job_trees import JobTree
from edt_server.fleet import MACHINE
from edt_server.messaging import ConversationLost, Gatekeeper, listen, send_now, sender_of
from edt_server.supervisor.processes.memory import forget_host
from edt_server.supervisor.processes.orphans import reap_orphans
from edt_server.supervisor.processes.predecessors import Predecessors
from edt_server.system.detached import start_detached
from edt_server.system.private_files import make_private_dir, write_private
from edt_server.system.processes import identify
from edt_server.system.slots import find_gpus, usable_cores

log = logging.getLogger(__name__)

LOOK_INTERVAL = 0.5
END_PATIENCE = 5.0
# Processes of an attempt that is over finish an update and write what only they have.
LAST_PATIENCE = 60.0
MAX_LINE = 32 << 20


@dataclass(slots=True, eq=False)
class _Below:
    """A supervisor or an outpost."""

    process: subprocess.Popen[bytes]
    stopped: float | None = None


@dataclass(slots=True, eq=False)
class _Outpost(_Below):
    attempt: int = 0
    peer: bytes = b""
    writer: asyncio.StreamWriter | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class _Supervisor(_Below):
    job: str = ""
    attempt: int = 0


@dataclass(slots=True, eq=False)
class _JobHere:
    """An attempt of a job whose orders are here. `ready` is set when its files are, and `home` is its supervisor's."""

    launch: Launch
    home: str
    tree: JobTree
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    spool: Spool | None = None
    sending: asyncio.Task[None] | None = None

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        return self.launch.attempt


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
        self._below: dict[int, _Below] = {}
        self._outposts: dict[str, _Outpost] = {}
        self._jobs: dict[str, _JobHere] = {}
        self._chunks: dict[tuple[str, str, int], asyncio.Future[bytes]] = {}
        self._room = asyncio.Semaphore(wire.WINDOW)
        self._peers: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ordered = asyncio.Event()
        self._retired = False
        self._over = asyncio.Event()
        self._files = None if orders.shared else HostFiles(self._data_dir, orders.cache_bytes)
        self._uplink = Uplink(self._context, orders, hello=self._hello, hear=self._hear, lost=self._disconnected)

    async def run(self) -> None:
        """Serve until no server needs this agent."""
        # A host is present or lost, never half: no state in memory may outlive it (decision 015).
        forget_host(self._orders.host, Path(self._orders.runtime_dir))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._gatekeeper.start()
        self._spawn(self._uplink.run(), "uplink")
        self._spawn(self._look(), "look")
        try:
            await self._over.wait()
        finally:
            # The guard ends what is left.
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._gatekeeper.stop()
            self._context.destroy(linger=0)

    # --- the server ---------------------------------------------------------------------------------------------------

    def _hello(self, server: str) -> wire.HostHello:
        if self._socket is None:
            self._interface = self._orders.interface or _address_towards(server)
            keys = self._orders.public_key, self._orders.secret_key
            self._socket, self._endpoint = listen(self._context, self._interface, keys)
            self._spawn(self._serve(self._socket), "serve")
        if not self._orders.shared:
            # Supervisors on this host dial the same server.
            address = ServerAddress(endpoint=server, public_key=self._orders.server_key)
            make_private_dir(self._peers_dir)
            write_private(self._data_dir / "control" / "server.json", msgspec.json.encode(address))
        below = [
            wire.Below(job=each.job, attempt=each.attempt, supervises=True)
            for each in self._below.values()
            if isinstance(each, _Supervisor)
        ]
        below += [wire.Below(job=job, attempt=each.attempt, supervises=False) for job, each in self._outposts.items()]
        return wire.HostHello(
            protocol=AGENT_PROTOCOL,
            wheel=version("jupyter-edt"),
            identity=self._identity,
            endpoint=self._endpoint,
            cores=usable_cores(),
            gpus=find_gpus(),
            offers=self._orders.slots,
            memory=memory(),
            kind="",
            below=tuple(below),
        )

    def _hear(self, message: wire.ToHost, data: bytes) -> None:
        match message:
            case wire.HostWelcome(outdated=outdated):
                for each in outdated:
                    self._spawn(self._end_attempt(each.job, each.attempt), f"end {each.job}")
                for here in self._jobs.values():
                    if here.spool is not None:
                        here.spool.connected.set()
            case wire.Peers(peers=peers):
                self._know_peers(peers)
            case wire.Prepare():
                self._spawn(self._prepare(message), f"prepare {message.launch.job_id}")
            case wire.Chunk(job=job, path=path, offset=offset, lost=lost):
                waiting = self._chunks.pop((job, path, offset), None)
                if waiting is not None and not waiting.done():
                    if lost:
                        waiting.set_exception(EdtError(f"The server cannot give {path}: {lost}", job=job))
                    else:
                        waiting.set_result(data)
            case wire.Taken(job=job):
                here = self._jobs.get(job)
                if here is not None and here.spool is not None:
                    here.spool.taken(message)
            case wire.Collect():
                self._spawn(self._collect(message), f"collect {message.job}")
            case wire.Forget(job=job, owner=owner):
                self._spawn(self._forget(job, owner), f"forget {job}")
            case wire.Retire():
                self._retired = True

    def _disconnected(self) -> None:
        for waiting in self._chunks.values():
            if not waiting.done():
                waiting.set_exception(ConversationLost("the server is gone"))
        self._chunks.clear()
        for here in self._jobs.values():
            if here.spool is not None:
                here.spool.connected.clear()
                here.spool.disconnected()

    def _know_peers(self, peers: tuple[wire.Peer, ...]) -> None:
        """Admit the hosts that there are, and tell the supervisors of this one where they are."""
        there = {peer.host for peer in peers}
        for gone in self._peers - there:
            self._gatekeeper.forget(_peer(gone))
            if not self._orders.shared:
                (self._peers_dir / f"{gone}.json").unlink(missing_ok=True)
        self._peers = there
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
                write_private(self._peers_dir / f"{peer.host}.json", wire.encode(address))

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _prepare(self, order: wire.Prepare) -> None:
        """Have the orders and the files of an attempt here, and start its supervisor if it belongs here."""
        job, attempt = order.launch.job_id, order.launch.attempt
        if (known := self._jobs.get(job)) is not None and known.attempt == attempt:
            # The server has not heard the answer. What is still under way here goes on.
            if order.supervises and known.ready.is_set():
                self._tell_supervisor(job, attempt)
            return
        try:
            await self._end_attempt(job, attempt - 1)
            launch = localized(order.launch, self._orders, self._interface, supervises=order.supervises)
            tree = JobTree(JobPaths(self._data_dir, launch.owner, job))
            begun = self._jobs[job] = _JobHere(launch, order.launch.host, tree)
            self._ordered.set()
            self._ordered = asyncio.Event()
            make_private_dir(tree.paths.job_dir)
            make_private_dir(Path(launch.runtime_dir))
            if self._files is not None:
                await self._files.have(tree, order.files, lambda path, offset: self._fetch(job, path, offset))
                begun.spool = self._begin_spool(begun, supervises=order.supervises)
                await asyncio.to_thread(begun.spool.compare, order.files, self._files.digests)
                begun.sending = asyncio.create_task(begun.spool.run(), name=f"spool {job}")
            if order.supervises or self._files is not None:
                write_private(tree.paths.launch_file, msgspec.json.encode(launch))
            begun.ready.set()
            if order.supervises:
                self._start_supervisor(begun)
        except* (EdtError, OSError, ConversationLost, msgspec.MsgspecError) as wrong:
            why = "; ".join(str(each) for each in _leaves(wrong))
            log.warning("job %s could not be prepared: %s", job, why)
            left = self._jobs.get(job)
            if left is not None and left.attempt == attempt and not left.ready.is_set():
                del self._jobs[job]
            if order.supervises:
                started = wire.SupervisorStarted(job=job, attempt=attempt, identity=None, why=why)
                self._uplink.send(started)

    async def _fetch(self, job: str, path: str, offset: int) -> bytes:
        future = asyncio.get_running_loop().create_future()
        self._chunks[job, path, offset] = future
        if not self._uplink.send(wire.Want(job=job, path=path, offset=offset)):
            self._chunks.pop((job, path, offset), None)
            raise ConversationLost("the server is gone")
        data: bytes = await future
        return data

    def _begin_spool(self, here: _JobHere, *, supervises: bool) -> Spool:
        return Spool(
            tree=here.tree,
            attempt=here.attempt,
            supervises=supervises,
            engine=here.launch.spec.framework == Framework.EDT,
            send=self._uplink.send,
            room=self._room,
            connected=self._uplink.connected,
        )

    async def _collect(self, order: wire.Collect) -> None:
        """Let the server have every file of an attempt, after the end of its processes if it is over."""
        if order.end:
            await self._end_attempt(order.job, order.attempt)
        here = self._jobs.get(order.job)
        tree = JobTree(JobPaths(self._data_dir, order.owner, order.job))
        if here is None and tree.paths.launch_file.exists() and self._files is not None:
            # Of an agent before this one, which did not come to send everything.
            launch = msgspec.json.decode(tree.paths.launch_file.read_bytes(), type=Launch)
            if launch.attempt == order.attempt:
                if order.files is None:
                    self._uplink.send(wire.Compare(job=order.job, attempt=order.attempt, end=order.end))
                    return
                here = self._jobs[order.job] = _JobHere(launch, launch.host, tree)
                here.spool = self._begin_spool(here, supervises=launch.host == self._orders.host)
                await asyncio.to_thread(here.spool.compare, order.files, self._files.digests)
                here.sending = asyncio.create_task(here.spool.run(), name=f"spool {order.job}")
                here.ready.set()
        if here is not None and here.spool is not None and here.attempt == order.attempt:
            await here.spool.flushed()
        self._uplink.send(wire.Collected(job=order.job, attempt=order.attempt))

    async def _end_attempt(self, job: str, attempt: int) -> None:
        """End what is left here of an attempt, or an older one. Its workers write first what only they have."""
        outpost = self._outposts.get(job)
        if outpost is not None and outpost.attempt <= attempt:
            outpost.process.send_signal(signal.SIGUSR1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_PATIENCE + END_PATIENCE):
                    await outpost.gone.wait()
            await self._end_outpost(outpost)
        supervisors = [each for each in self._below.values() if isinstance(each, _Supervisor) and each.job == job]
        for each in supervisors:
            if each.attempt <= attempt:
                each.process.kill()
        here = self._jobs.get(job)
        if here is None or here.attempt > attempt:
            return
        # All processes of an attempt hold its lock. Those without a supervisor end by themselves.
        lock = Path(here.launch.runtime_dir) / "alive.lock"
        if lock.exists():
            predecessors = Predecessors(lock, LAST_PATIENCE)
            try:
                await predecessors.gone()
            finally:
                predecessors.close()

    async def _forget(self, job: str, owner: str) -> None:
        here = self._jobs.pop(job, None)
        if here is not None:
            if here.sending is not None:
                here.sending.cancel()
                await asyncio.wait({here.sending})
        if (outpost := self._outposts.get(job)) is not None:
            await self._end_outpost(outpost)
        if self._files is not None:
            tree = JobTree(JobPaths(self._data_dir, owner, job))
            await asyncio.to_thread(self._files.remove, tree)
            await asyncio.to_thread(self._files.trim)

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
        outpost = self._outposts.get(job)
        match wire.decode_to_agent(data):
            case wire.StartOutpost() as order:
                # Not in this loop: the orders of the job may be on their way, and the outpost before it has to end.
                self._spawn(self._start_outpost(sender, peer, job, order), f"outpost {job}")
            case wire.PutFile() as put if outpost is not None and outpost.peer == peer:
                self._send(peer, job, wire.encode(await self._put(job, put, content)))
            case _ if outpost is not None and outpost.peer == peer and outpost.writer is not None:
                outpost.writer.write(data + b"\n")
            case message:
                log.warning("no outpost for a %s, job=%s", type(message).__name__, job)

    async def _put(self, job: str, put: wire.PutFile, content: bytes) -> wire.FilePut:
        tree = self._jobs[job].tree
        try:
            place = tree.checked(f"{tree.paths.job_dir.relative_to(self._data_dir)}/{put.name}")
            beside = place.with_name(f".{place.name}{job_trees.UNFINISHED}")
            write = job_trees.write_at
            fresh = put.offset == 0
            await asyncio.to_thread(write, beside, tree.within(place), put.offset, content, 0o600, fresh=fresh)
            if put.last:
                os.replace(beside, place)
        except (EdtError, OSError) as wrong:
            return wire.FilePut(name=put.name, offset=put.offset, why=str(wrong))
        return wire.FilePut(name=put.name, offset=put.offset)

    def _send(self, peer: bytes, job: str, data: bytes) -> None:
        # A client that is gone is ignored. The next client gets what was lost with it.
        wrong = None if self._socket is None else send_now(self._socket, peer, job.encode(), data)
        if wrong is not None:
            log.warning("not sent, job=%s: %s", job, wrong)

    # --- processes ----------------------------------------------------------------------------------------------------

    def _start_supervisor(self, here: _JobHere) -> None:
        paths = here.tree.paths
        process = self._popen(paths, ["supervisor", str(paths.launch_file)], subprocess.DEVNULL)
        self._below[process.pid] = _Supervisor(process, job=paths.job_id, attempt=here.attempt)
        log.info("supervisor started, job=%s attempt=%d pid=%d", paths.job_id, here.attempt, process.pid)
        self._tell_supervisor(paths.job_id, here.attempt)

    def _tell_supervisor(self, job: str, attempt: int) -> None:
        for pid, each in self._below.items():
            if isinstance(each, _Supervisor) and (each.job, each.attempt) == (job, attempt):
                with contextlib.suppress(ProcessLookupError):
                    identity = identify(pid)
                    self._uplink.send(wire.SupervisorStarted(job=job, attempt=attempt, identity=identity))
                return
        self._uplink.send(wire.SupervisorEnded(job=job, attempt=attempt, code=0))

    async def _start_outpost(self, sender: str, peer: bytes, job: str, order: wire.StartOutpost) -> None:
        # Its orders come from the server, at about the same time. A supervisor that has waited for long asks again.
        while (here := self._jobs.get(job)) is None or here.attempt < order.attempt:
            await self._ordered.wait()
        # Fencing: the supervisor of an older attempt must not end the workers of a newer one.
        why = "" if here.attempt == order.attempt else f"attempt {here.attempt} of the job is under way here"
        # Supervisors on hosts with the server's files have its key.
        if sender not in (_peer(here.home), _peer(MACHINE)):
            why = "the job's supervisor is on another host"
        if why:
            self._send(peer, job, wire.encode(wire.OutpostStarted(pid=0, why=why)))
            return
        await here.ready.wait()
        # One outpost per job: the former serves an earlier conversation or attempt, and may still have workers.
        while (former := self._outposts.get(job)) is not None:
            await self._end_outpost(former)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                arguments = [
                    "outpost",
                    wire.encode(order).decode(),
                    msgspec.json.encode(here.launch).decode(),
                    self._orders.host,
                ]
                process = self._popen(here.tree.paths, arguments, theirs.fileno())
        except OSError as wrong:
            ours.close()
            self._send(peer, job, wire.encode(wire.OutpostStarted(pid=0, why=str(wrong))))
            return
        outpost = self._outposts[job] = _Outpost(process, attempt=order.attempt, peer=peer)
        self._below[process.pid] = outpost
        reader, outpost.writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_LINE)
        log.info("outpost started, job=%s pid=%d", job, process.pid)
        self._send(peer, job, wire.encode(wire.OutpostStarted(pid=process.pid)))
        # Until it has exited and all its output is read.
        with contextlib.suppress(ConnectionError, ValueError):
            while (line := await reader.readline()).endswith(b"\n"):
                self._send(peer, job, line[:-1])
        await outpost.gone.wait()
        outpost.writer.close()
        if self._outposts.get(job) is outpost:
            del self._outposts[job]
        self._send(peer, job, wire.encode(wire.OutpostEnded(code=process.returncode)))

    async def _end_outpost(self, outpost: _Outpost) -> None:
        outpost.process.terminate()
        try:
            async with asyncio.timeout(END_PATIENCE):
                await outpost.gone.wait()
        except TimeoutError:
            outpost.process.kill()
            await outpost.gone.wait()
        await asyncio.sleep(0)

    def _popen(self, paths: JobPaths, arguments: list[str], stdin: int) -> subprocess.Popen[bytes]:
        return start_detached(
            "edt_server.agent",
            ["below", str(os.getpid()), *arguments],
            folder=paths.job_dir,
            log=paths.supervisor_log,
            environ=os.environ,  # what the server, or who has started the agent, passed on
            stdin=stdin,
        )

    def _reap(self) -> None:
        for pid, below in list(self._below.items()):
            if below.process.poll() is not None:
                del self._below[pid]
                log.info("process below ended, pid=%d code=%d", pid, below.process.returncode)
                if isinstance(below, _Outpost):
                    below.gone.set()
                elif isinstance(below, _Supervisor):
                    code = below.process.returncode
                    self._uplink.send(wire.SupervisorEnded(job=below.job, attempt=below.attempt, code=code))
        # Workers without a supervisor exit by themselves.
        reap_orphans(self._below.keys(), kill=False)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            self._reap()
            now = time.monotonic()
            for below in self._below.values():
                self._look_at(below, now)
            idle = not self._below and not reap_orphans((), kill=False)
            patience = self._orders.idle
            if idle and (self._retired or (patience is not None and self._uplink.silence > patience)):
                log.info("the agent of host %s is not needed any more", self._orders.host)
                self._over.set()

    def _look_at(self, below: _Below, now: float) -> None:
        if state_of(below.process.pid) not in ("T", "t"):
            below.stopped = None
        elif below.stopped is None:
            below.stopped = now
        elif now - below.stopped > STOPPED_PATIENCE:
            log.warning("process %d was stopped: killed", below.process.pid)
            below.process.kill()

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


def _leaves(group: BaseExceptionGroup[Exception]) -> list[BaseException]:
    return [
        leaf
        for each in group.exceptions
        for leaf in (_leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]


def _address_towards(server: str) -> str:
    """Return the address by which this machine reaches the server, which others then reach it by."""
    host, _, port = server.removeprefix("tcp://").rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
        probe.connect(found[4])  # sends nothing
        address: str = probe.getsockname()[0]
        return address
