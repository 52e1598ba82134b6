"""Run the agent of a host: it starts supervisors and outposts below itself, reaps them, and forwards messages to them.

It decides nothing and knows only the ids of jobs. Everything below it is killed with it (`guard.py`). When it starts,
all that its host had in memory counts as lost. It exits by itself when nothing runs below it and no server has
sent anything for a while.
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
from pathlib import Path
from typing import Any

import msgspec
import zmq.asyncio

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.agent import AGENT_PROTOCOL, AgentAddress, AgentOrders
from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.agent.guard import STOPPED_PATIENCE, state_of
from edt_server.messaging import Gatekeeper, key_pair, listen, send_now
from edt_server.supervisor.processes.memory import forget_host
from edt_server.supervisor.processes.orphans import reap_orphans
from edt_server.system.detached import start_detached
from edt_server.system.private_files import make_private_dir, write_private
from edt_server.system.processes import identify

log = logging.getLogger(__name__)

# Seconds without a server. A server that restarts is back sooner.
IDLE_PATIENCE = 20.0
LOOK_INTERVAL = 0.5
END_PATIENCE = 5.0
MAX_LINE = 32 << 20
_CLIENT = "client"


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


class HostAgent:
    """The agent of a host."""

    def __init__(self, orders: AgentOrders) -> None:
        self._orders = orders
        self._address_file = Path(orders.address_file)
        self._context = zmq.asyncio.Context()
        self._gatekeeper = Gatekeeper(self._context)
        self._below: dict[int, _Below] = {}
        self._outposts: dict[str, _Outpost] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard = time.monotonic()
        self._retired = False
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Serve until no server needs this agent."""
        # A host is present or lost, never half: no state in memory may outlive it (decision 015).
        forget_host(self._orders.host, Path(self._orders.runtime_dir))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._socket = self._listen()
        self._spawn(self._serve(self._socket), "serve")
        self._spawn(self._look(), "look")
        try:
            await self._over.wait()
        finally:
            # The guard ends what is left.
            self._address_file.unlink(missing_ok=True)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._gatekeeper.stop()
            self._context.destroy(linger=0)

    def _listen(self) -> zmq.asyncio.Socket:
        keys = key_pair()
        client_public, client_secret = key_pair()
        self._gatekeeper.start()
        self._gatekeeper.admit(_CLIENT, client_public)
        socket, endpoint = listen(self._context, self._orders.interface, keys)
        address = AgentAddress(
            protocol=AGENT_PROTOCOL,
            host=self._orders.host,
            endpoint=endpoint,
            identity=identify(os.getpid()),
            public_key=keys[0],
            client_public=client_public,
            client_secret=client_secret,
        )
        write_private(self._address_file, wire.encode(address))
        log.info("agent of host %s listens at %s", address.host, address.endpoint)
        return socket

    # --- messages -----------------------------------------------------------------------------------------------------

    async def _serve(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames = await socket.recv_multipart()
            if len(frames) != 3:
                continue
            peer, job, data = frames[0], frames[1].decode("utf-8", "replace"), frames[2]
            try:
                await self._receive(peer, job, data)
            except (OSError, msgspec.MsgspecError) as wrong:
                # One job's error must not affect the others.
                log.warning("a message could not be dealt with, job=%s: %s", job, wrong)

    async def _receive(self, peer: bytes, job: str, data: bytes) -> None:
        outpost = self._outposts.get(job)
        match wire.decode_to_agent(data):
            case wire.Ping():
                self._heard, self._retired = time.monotonic(), False
                self._send(peer, job, wire.encode(wire.Pong()))
            case wire.Retire():
                self._retired = True
            case wire.StartSupervisor(launch_file=path):
                self._heard = time.monotonic()
                self._send(peer, job, wire.encode(self._start_supervisor(path)))
            case wire.StartOutpost() as order:
                # Not in this loop: the outpost before it has to end first.
                self._spawn(self._start_outpost(peer, job, order), f"outpost {job}")
            case _ if outpost is not None and outpost.peer == peer and outpost.writer is not None:
                outpost.writer.write(data + b"\n")
            case message:
                log.warning("no outpost for a %s, job=%s", type(message).__name__, job)

    def _send(self, peer: bytes, job: str, data: bytes) -> None:
        # A client that is gone is ignored. The next client gets what was lost with it.
        wrong = send_now(self._socket, peer, job.encode(), data)
        if wrong is not None:
            log.warning("not sent, job=%s: %s", job, wrong)

    # --- processes ----------------------------------------------------------------------------------------------------

    def _start_supervisor(self, launch_file: str) -> wire.SupervisorStarted:
        try:
            paths = _paths(launch_file)
            process = self._popen(paths, ["supervisor", launch_file], subprocess.DEVNULL)
            identity = identify(process.pid)
        except (OSError, msgspec.MsgspecError) as wrong:
            return wire.SupervisorStarted(identity=None, why=str(wrong))
        self._below[process.pid] = _Below(process)
        log.info("supervisor started, pid=%d orders=%s", process.pid, launch_file)
        return wire.SupervisorStarted(identity=identity)

    async def _start_outpost(self, peer: bytes, job: str, order: wire.StartOutpost) -> None:
        # Fencing: the supervisor of an older attempt must not end the workers of a newer one.
        if (newer := self._outposts.get(job)) is not None and newer.attempt > order.attempt:
            why = f"attempt {newer.attempt} of the job is under way here"
            self._send(peer, job, wire.encode(wire.OutpostStarted(pid=0, why=why)))
            return
        # One outpost per job: the former serves an earlier conversation or attempt, and may still have workers.
        while (former := self._outposts.get(job)) is not None:
            await self._end_outpost(former)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                arguments = ["outpost", wire.encode(order).decode(), wire.encode(self._orders).decode()]
                process = self._popen(_paths(order.launch_file), arguments, theirs.fileno())
        except (OSError, msgspec.MsgspecError) as wrong:
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
            environ=os.environ,  # what the server passed on
            stdin=stdin,
        )

    def _reap(self) -> None:
        for pid, below in list(self._below.items()):
            if below.process.poll() is not None:
                del self._below[pid]
                log.info("process below ended, pid=%d code=%d", pid, below.process.returncode)
                if isinstance(below, _Outpost):
                    below.gone.set()
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
            if idle and (self._retired or now - self._heard > IDLE_PATIENCE):
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
            if task.get_name() in ("serve", "look"):
                self._over.set()  # the server notices, and starts another agent


def main(text: str) -> int:
    """Run the agent."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    orders = msgspec.json.decode(text, type=AgentOrders)
    make_private_dir(Path(orders.address_file).parent)
    asyncio.run(HostAgent(orders).run())
    return 0


def _paths(launch_file: str) -> JobPaths:
    orders = msgspec.json.decode(Path(launch_file).read_bytes(), type=Launch)
    return JobPaths(Path(orders.data_dir), orders.owner, orders.job_id)
