"""Decide which clients may connect to the control channel: ZeroMQ asks this handler about each key (ZAP, RFC 27).

An admitted key connects under the name of its job or host, which ZeroMQ then attaches to each message of that
connection. Any other key is refused before it can send a byte.
"""

from __future__ import annotations

import asyncio
import logging

import zmq
import zmq.asyncio
from zmq.utils import z85

log = logging.getLogger(__name__)

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"


class Gatekeeper:
    """The keys (Z85) and the names of their owners, for the sockets of a context. Each owner has one key."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self._context = context
        self._owners: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._socket: zmq.asyncio.Socket | None = None
        self._task: asyncio.Task[None] | None = None

    def admit(self, owner: str, public_key: str) -> None:
        """Admit this key for the owner, in place of its former key."""
        self.forget(owner)
        self._owners[public_key] = owner
        self._keys[owner] = public_key

    def forget(self, owner: str) -> None:
        """Refuse the owner's key from now on."""
        key = self._keys.pop(owner, None)
        # Two owners with one key would be a mistake, and the one admitted last has it.
        if key is not None and self._owners[key] == owner:
            del self._owners[key]

    def knows(self, owner: str) -> bool:
        """Return whether the owner has a key."""
        return owner in self._keys

    def start(self) -> None:
        """Start to answer. Call it before any socket of the context listens."""
        self._socket = self._context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ENDPOINT)
        self._task = asyncio.create_task(self._serve(self._socket), name="edt gatekeeper")

    async def stop(self) -> None:
        """Stop answering: no client is admitted any more."""
        if self._task is not None and self._socket is not None:
            self._task.cancel()
            # The task first: its poll of a closed socket may wait on a descriptor that another socket has by then.
            # That race in pyzmq's own handler is why this class exists (decision 007).
            await asyncio.wait({self._task})
            self._socket.close()
            self._task = self._socket = None

    async def _serve(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            version, request, _domain, address, _identity, mechanism, *credentials = await socket.recv_multipart()
            owner = ""
            if version == _VERSION and mechanism == b"CURVE" and len(credentials) == 1:
                owner = self._owners.get(z85.encode(credentials[0]).decode("ascii"), "")
            if owner:
                answer = [b"200", b"OK", owner.encode(), b""]
            else:
                log.warning("unknown key refused, address=%s", address.decode("ascii", "replace"))
                answer = [b"400", b"Unknown key", b"", b""]
            await socket.send_multipart([_VERSION, request, *answer])
