"""The agent's connection to the server: dial, say hello, answer, and dial again when it is lost.

Several addresses may lead to the server, and a server that takes over may have another one: they are tried in turn. A
host without a server goes on with what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq.asyncio

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import ServerAddress
from edt_server.messaging import Conversation, ConversationLost, read_struct, send_now

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_HELLO_PATIENCE = 5.0
REFUSED_PAUSE = 5.0


class Uplink:
    """The connection of a host to its server.

    `hello` makes the first message of each connection, `hear` gets every message with the bytes behind it, and `lost`
    is called after each connection.
    """

    def __init__(
        self,
        context: zmq.asyncio.Context,
        orders: wire.AgentOrders,
        *,
        hello: Callable[[ServerAddress], wire.HostHello],
        hear: Callable[[wire.ToHost, bytes], None],
        lost: Callable[[], None],
    ) -> None:
        self._context = context
        self._orders = orders
        self._hello = hello
        self._hear = hear
        self._lost = lost
        self._conversation: Conversation | None = None
        self._connections = 0
        self._heard = time.monotonic()
        self._asked = 0.0
        self._round_trip: float | None = None
        self.connected = asyncio.Event()
        """Set while the server has welcomed this host."""
        self.refused = ""
        """Why the server does not want this host, "" where it does."""
        self.unreached: set[str] = set()
        """Hosts that did not answer when this one last tried to reach them."""

    @property
    def silence(self) -> float:
        """Return the seconds since the server was heard."""
        return time.monotonic() - self._heard

    def send(self, message: wire.ToServer, *data: bytes) -> bool:
        """Send, with the bytes of a file. Return False while there is no connection."""
        if self._conversation is None:
            return False
        return send_now(self._conversation.socket, wire.encode(message), *data) is None

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        pause, number = _FIRST_PAUSE, 0
        while True:
            servers = self._servers()
            if servers and await self._converse(servers[number % len(servers)]):
                pause = _FIRST_PAUSE
            number += 1
            await asyncio.sleep(REFUSED_PAUSE if self.refused else pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _servers(self) -> list[ServerAddress]:
        orders = self._orders
        if not orders.shared:
            return [ServerAddress(endpoint=each, public_key=orders.server_key) for each in orders.servers]
        # Read each time: another server has another endpoint.
        found = read_struct(Path(orders.data_dir) / "control" / "server.json", ServerAddress)
        return [] if found is None else [found]

    async def _converse(self, server: ServerAddress) -> bool:
        """Hold a connection until it is lost. Return whether the server has welcomed this host."""
        keys = self._orders.public_key, self._orders.secret_key
        try:
            conversation = Conversation(self._context, server, keys, linger=500)
        except zmq.ZMQError as wrong:
            log.warning("no connection to %s: %s", server.endpoint, wrong)
            return False
        beating: asyncio.Task[None] | None = None
        welcomed = False
        try:
            async with asyncio.timeout(_HELLO_PATIENCE) as patience:
                # What the hello tells is looked at now, so that nothing is missed between it and the first message.
                self._conversation = conversation
                self._connections += 1
                hello = msgspec.structs.replace(self._hello(server), connection=self._connections)
                await conversation.socket.send(wire.encode(hello))
                while True:
                    frames = await conversation.receive()
                    message = wire.decode_to_host(frames[0])
                    self._heard = time.monotonic()
                    match message:
                        case wire.HostWelcome(beat=beat):
                            patience.reschedule(None)
                            self.refused, welcomed = "", True
                            beating = asyncio.create_task(self._beat(beat), name="beat")
                            self._hear(message, b"")
                            self.connected.set()
                            log.info("connected to the server at %s", server.endpoint)
                        case wire.HostRefused(why=why, hint=hint):
                            self.refused = f"{why} {hint}".strip()
                            log.error("refused by the server: %s", self.refused)
                            return False
                        case wire.Heard():
                            if self._asked:
                                self._round_trip, self._asked = time.monotonic() - self._asked, 0.0
                            self._hear(message, b"")
                        case _:
                            self._hear(message, frames[1] if len(frames) > 1 else b"")
        except (ConversationLost, TimeoutError, msgspec.MsgspecError) as wrong:
            log.debug("ended with %s", wrong)
        finally:
            self._conversation = None
            if beating is not None:
                beating.cancel()
                await asyncio.wait({beating})
            if welcomed:
                log.info("connection to the server lost")
                self.connected.clear()
                self._lost()
            await conversation.close()
        return welcomed

    async def _beat(self, interval: float) -> None:
        while True:
            self._asked = time.monotonic()
            self.send(
                wire.HostBeat(
                    load=os.getloadavg()[0],
                    memory_free=_memory("MemAvailable"),
                    disk_free=_disk_free(self._orders.data_dir),
                    round_trip=self._round_trip,
                    unreached=tuple(sorted(self.unreached)),
                )
            )
            await asyncio.sleep(interval)


def memory() -> int:
    """Return the bytes of memory that this machine has."""
    return _memory("MemTotal")


def _memory(name: str) -> int:
    with contextlib.suppress(OSError, ValueError, StopIteration), open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{name}:"))
    return 0


def _disk_free(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
