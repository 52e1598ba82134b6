"""The server's end of the control channel: authenticate supervisors by their keys and pass messages to callbacks.

ZeroMQ ROUTER with CURVE. The gatekeeper maps each supervisor's public key to its job. An unknown key cannot connect,
and the job id of a message is the one its connection was authenticated as. The server's key pair persists, the endpoint
is written at every start. Nothing is decided or stored here. Agents of hosts use the
same socket, under keys of theirs. An Ack is sent when `on_report` has returned, and messages
that a callback sends to its own job follow the Ack or Welcome that answers it. A supervisor may therefore rely on it
that any Allocation after an Ack includes the acknowledged report.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import msgspec
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobProgress
from edt_sdk.schemas.wire import control as wire
from edt_sdk.schemas.wire.agent import HOST_KEY, TOKEN_KEY
from edt_server.messaging import Gatekeeper, key_pair, listen, send_now, sender_of
from edt_server.store import StoreUnavailable
from edt_server.system.private_files import make_private_dir, write_private

log = logging.getLogger(__name__)

KEY_FILE = "server.key"
ADDRESS_FILE = "server.json"
_LOOK, _TURN = 0.25, 0.01


class _KeyPair(msgspec.Struct, frozen=True):
    public: str
    secret: str


class NotYet(EdtError):
    """The report has to be sent again, because something else comes before it. Nothing is wrong."""


class HostMessages(Protocol):
    """Receives what agents of hosts send."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where agents of other machines dial, such as "tcp://0.0.0.0:8790"."""

    def started(self, control: ControlServer, keys: tuple[str, str]) -> None:
        """Called before the socket listens, with the server's CURVE pair (public, secret)."""

    def receive(self, sender: str, peer: bytes, message: bytes, data: bytes) -> None:
        """Called with each message of an agent: the name that its key is admitted under, and where to answer."""

    def look(self) -> None:
        """Called when a client has gone, which may be any."""


class ControlServer:
    """The server's socket for the supervisors of all jobs. Everything happens on the event loop that `start` ran on.

    `control_dir` has the key pair and the address file. `on_hello` answers a supervisor's first message. Refused ends
    that supervisor. `on_report` commits a report, and gets repeated ones too. When it raises, nothing is acknowledged,
    and later reports of that job are left unread until the failed one was repeated. `on_connected` follows a Welcome.
    `hosts` gets what comes under the keys of hosts.
    """

    def __init__(
        self,
        control_dir: Path,
        *,
        interface: str = "127.0.0.1",
        on_hello: Callable[[str, wire.SupervisorHello], Awaitable[wire.Welcome | wire.Refused]],
        on_report: Callable[[str, wire.Numbered], Awaitable[None]],
        on_progress: Callable[[str, JobProgress], None],
        on_connected: Callable[[str], Awaitable[None]],
        hosts: HostMessages | None = None,
    ) -> None:
        self._dir = control_dir
        self.control_file = control_dir / ADDRESS_FILE
        """The file in which supervisors read the endpoint and the server's public key."""
        self._interface = interface
        self._on_hello = on_hello
        self._on_report = on_report
        self._on_progress = on_progress
        self._on_connected = on_connected
        self._hosts = hosts
        self._context = zmq.asyncio.Context()
        self._gatekeeper = Gatekeeper(self._context)
        self._socket: zmq.asyncio.Socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._peers: dict[str, bytes] = {}
        self._answering: str | None = None
        self._withheld: list[wire.ToSupervisor] = []
        self._failed: dict[str, int] = {}
        self._waits = False  # a report waits for the store

    async def start(self) -> None:
        """Listen, and write the address file. EdtError when the interface cannot be bound."""
        make_private_dir(self._dir)
        pair = _server_keys(self._dir / KEY_FILE)
        self._gatekeeper.start()
        endpoints = () if self._hosts is None else self._hosts.endpoints
        if self._hosts is not None:
            self._hosts.started(self, (pair.public, pair.secret))
        try:
            socket, endpoint = listen(self._context, self._interface, (pair.public, pair.secret), *endpoints)
        except zmq.ZMQError as wrong:
            await self._gatekeeper.stop()
            raise EdtError(
                f"The control channel cannot listen on {', '.join((self._interface, *endpoints))}: {wrong}.",
                hint="Set c.EdtApp.worker_interface to an address of this host, c.EdtApp.fleet_listen to a free port.",
            ) from wrong
        # An unreachable supervisor is an error of `send`, not a message silently dropped.
        socket.router_mandatory = True
        write_private(self.control_file, wire.encode(wire.ServerAddress(endpoint=endpoint, public_key=pair.public)))
        self._socket = socket
        self._tasks = [asyncio.create_task(self._serve(socket), name="edt control channel")]
        if self._hosts is not None:
            self._tasks.append(asyncio.create_task(self._watch(socket, self._hosts), name="edt control monitor"))

    async def stop(self) -> None:
        """Stop listening. Supervisors keep their reports and look for the next server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            await self._gatekeeper.stop()
        self._context.destroy(linger=0)
        self._peers.clear()

    def admit(self, job_id: str, public_key: str) -> None:
        """Accept this client key (Z85) for the job from now on, and refuse its former key, if any."""
        self._gatekeeper.admit(job_id, public_key)

    def forget(self, job_id: str) -> None:
        """Refuse the job's key from now on, and ignore messages of a connection that is still open."""
        self._gatekeeper.forget(job_id)
        self._peers.pop(job_id, None)
        self._failed.pop(job_id, None)

    def answer(self, peer: bytes, *frames: bytes) -> bool:
        """Send to the agent that a message came from. False when it is gone."""
        return self._socket is not None and send_now(self._socket, peer, *frames) is None

    def repeat(self, job_id: str, acknowledged: int) -> None:
        """Have the job's supervisor send its reports after that number once more, at once."""
        self._send(job_id, wire.Welcome(protocol=wire.PROTOCOL, acknowledged=acknowledged))

    def send(self, job_id: str, message: wire.ToSupervisor) -> bool:
        """Send to the job's supervisor. False when it is not connected now (see `on_connected`)."""
        # Withheld until the Ack is sent: a supervisor takes every Allocation after an Ack as one that knows the report
        # (docs/decisions/003).
        if job_id == self._answering:
            self._withheld.append(message)
            return True
        return self._send(job_id, message)

    def _send(self, job_id: str, message: wire.ToSupervisor) -> bool:
        peer = self._peers.get(job_id)
        if peer is None or self._socket is None:
            return False
        if send_now(self._socket, peer, wire.encode(message)) is not None:
            del self._peers[job_id]
            return False
        return True

    async def _serve(self, socket: zmq.asyncio.Socket) -> None:
        others = time.monotonic()
        while True:
            # A message that is there already is received without a pause: of many, none would let anything else run.
            if time.monotonic() - others > _TURN:
                await asyncio.sleep(0)
                others = time.monotonic()
            frames = await socket.recv_multipart(copy=False)
            sender = sender_of(frames[-1])
            if sender is None or len(frames) not in (2, 3):
                log.warning("message with %d frames dropped, sender=%s", len(frames), sender)
            elif self._hosts is not None and sender.startswith((HOST_KEY, TOKEN_KEY)):
                data = frames[2].bytes if len(frames) == 3 else b""
                try:
                    self._hosts.receive(sender, frames[0].bytes, frames[1].bytes, data)
                except Exception:
                    # An error with one host must not end the loop that serves all.
                    log.exception("a message could not be dealt with, sender=%s", sender)
            else:
                await self._receive(sender, frames[0].bytes, frames[1].bytes)

    async def _watch(self, socket: zmq.asyncio.Socket, hosts: HostMessages) -> None:
        """Tell `hosts` when a client has gone. Which one it was the socket does not tell."""
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        assert monitor is not None
        try:
            while True:
                await recv_monitor_message(monitor)
                # A look asks all hosts, and a thousand machines that join have as many clients that go.
                await asyncio.sleep(_LOOK)
                while await monitor.poll(0):
                    await recv_monitor_message(monitor)
                hosts.look()
        finally:
            socket.disable_monitor()
            monitor.close()

    async def _receive(self, job_id: str, peer: bytes, data: bytes) -> None:
        if not self._gatekeeper.knows(job_id):
            log.warning("message of a forgotten job dropped, job=%s", job_id)
            return
        try:
            message = wire.decode_to_server(data)
        except msgspec.MsgspecError as wrong:
            log.warning("message that is none dropped, job=%s: %s", job_id, type(wrong).__name__)
            return
        # After a reconnect, messages of the old connection may still be in the queue, even reports that were repeated
        # since.
        if not isinstance(message, wire.SupervisorHello) and self._peers.get(job_id) != peer:
            log.warning("message before a hello, or of a replaced connection, dropped, job=%s", job_id)
            return
        self._answering = job_id
        # An error with one supervisor must not end the loop that serves all of them.
        try:
            match message:
                case wire.SupervisorHello():
                    await self._hello(job_id, peer, message)
                case wire.Numbered():
                    await self._report(job_id, message)
                case wire.ProgressReport(progress=progress):
                    self._on_progress(job_id, progress)
        except StoreUnavailable:
            # The ledger's writer logs the store's trouble once. Supervisors repeat unacknowledged reports every second,
            # so only the first is logged.
            level, self._waits = logging.DEBUG if self._waits else logging.INFO, True
            log.log(level, "a %s waits until the job store can be used, job=%s", type(message).__name__, job_id)
        except NotYet as why:
            log.info("%s", why)
        except Exception:
            log.exception("a %s could not be dealt with, job=%s", type(message).__name__, job_id)
        finally:
            self._answering = None
            withheld, self._withheld = self._withheld, []
            for each in withheld:
                self._send(job_id, each)

    async def _hello(self, job_id: str, peer: bytes, hello: wire.SupervisorHello) -> None:
        answer = await self._on_hello(job_id, hello)
        if isinstance(answer, wire.Refused):
            log.warning("supervisor refused, job=%s: %s", job_id, answer.why)
            if self._socket is not None:
                send_now(self._socket, peer, wire.encode(answer))
            self._withheld.clear()
            return
        self._peers[job_id] = peer
        self._failed.pop(job_id, None)
        self._send(job_id, answer)
        await self._on_connected(job_id)

    async def _report(self, job_id: str, report: wire.Numbered) -> None:
        failed = self._failed.get(job_id)
        if failed is not None and report.number > failed:
            # An Ack covers all numbers below its own: nothing may overtake the report that could not be committed.
            return
        try:
            await self._on_report(job_id, report)
        except Exception:
            self._failed[job_id] = report.number
            raise
        self._waits = False
        if failed == report.number:
            del self._failed[job_id]
        self._send(job_id, wire.Ack(number=report.number))


def _server_keys(path: Path) -> _KeyPair:
    """Return the key pair in `path`, made at the first start. Supervisors trust the next server because of it."""
    while True:
        try:
            return msgspec.json.decode(path.read_bytes(), type=_KeyPair)
        except FileNotFoundError:
            public, secret = key_pair()
            fresh = path.with_name(f"{path.name}.{os.getpid()}")
            write_private(fresh, msgspec.json.encode(_KeyPair(public=public, secret=secret)))
            # A link and not a rename: of two servers that start at once, both must end up with the same pair.
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
            fresh.unlink()
        except msgspec.MsgspecError as wrong:
            raise EdtError(
                f"{path} is not a key pair of the control channel.",
                hint="Move the file away; running jobs will not find the new server, new ones will.",
            ) from wrong
