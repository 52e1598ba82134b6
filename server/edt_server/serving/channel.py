"""Listen on the Unix socket of a target, where its replicas connect.

The kernel identifies the peer (SO_PEERCRED): it has the uid of the edge, or that of the target's owner. Malformed input
closes the connection, which for the edge is the death of the replica. A closed connection is never used again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, cast

import msgspec

from edt_sdk.schemas.serving import replica_channel
from edt_sdk.schemas.serving.replica_channel import Answers, ReplicaReady, RequestBatch, ScoringRequest
from edt_server.serving.dispatch import Pending, Reply

log = logging.getLogger(__name__)
_UCRED = struct.Struct("3i")
# It becomes a header of HTTP.
_CONTENT_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.+-]+=[\w.+-]+)*", re.ASCII)


class Receiver(Protocol):
    """What hears of the replicas of a target."""

    def ready(self, connection: ReplicaConnection, ready: ReplicaReady) -> None:
        """A replica has connected."""

    def answered(self, connection: ReplicaConnection, answers: Answers, replies: dict[int, Reply]) -> None:
        """A replica has answered a batch. ValueError closes its connection."""

    def lost(self, connection: ReplicaConnection, *, unread: bool) -> None:
        """A replica that was ready is gone, and has left its last batch unread."""


class Channel:
    """The socket of a target. `owner` is the user and the group of its replicas, None for those of this process."""

    def __init__(self, path: str, owner: tuple[int, int] | None, receiver: Receiver) -> None:
        self._path = path
        self._owner = owner
        self._receiver = receiver
        self._server: asyncio.AbstractServer | None = None
        self._inode: int | None = None
        self._trouble = ""

    async def listen(self) -> None:
        """Listen, also in place of a file that was removed or replaced. What fails is logged, once."""
        if self._inode is not None and self._inode == _inode(self._path):
            return
        self.close()
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._connection, self._path)
            os.chmod(self._path, 0o600)
            if self._owner is not None:
                # Not the account's own: it could put another socket in its place.
                os.chown(self._path, -1, self._owner[1])
                os.chmod(self._path, 0o660)
            self._inode, self._trouble = _inode(self._path), ""
        except OSError as wrong:
            if self._trouble != str(wrong):
                log.warning("no replica can connect at %s: %s", self._path, wrong)
                self._trouble = str(wrong)

    def close(self) -> None:
        """Take no further connection. Those that there are stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._inode is not None and self._inode == _inode(self._path):
            os.unlink(self._path)
        self._inode = None

    def _connection(self) -> ReplicaConnection:
        uid = os.geteuid() if self._owner is None else self._owner[0]
        return ReplicaConnection(uid, self._receiver)


class ReplicaConnection(asyncio.Protocol):
    """The connection of a replica, which belongs to the account `uid`.

    Attributes:
        worker: its number in its job, None until it is ready.
        since: when it was given its last batch.
    """

    def __init__(self, uid: int, receiver: Receiver) -> None:
        self.worker: int | None = None
        self.since = 0.0
        self._uid = uid
        self._receiver = receiver
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse other accounts."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without deriving from it
        connection: socket.socket = transport.get_extra_info("socket")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, _ = _UCRED.unpack(credentials)
        if uid != self._uid:
            log.warning("connection of user %d refused, expected user %d", uid, self._uid)
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take the frames that are complete."""
        assert self._transport is not None
        self._buffer += data
        try:
            while not self.closing and (frame := self._next_frame()) is not None:
                self._take(*frame)
        except (ValueError, msgspec.MsgspecError) as wrong:
            log.warning("malformed message of replica %s: %s", self.worker, wrong)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of a replica that was ready."""
        if self.worker is not None:
            # The kernel reports an error when the other end has closed before it has read everything. A process that
            # dies while it computes has read its batch, and the connection ends as it should.
            self._receiver.lost(self, unread=exc is not None)

    def give(self, requests: Sequence[Pending], now: float) -> None:
        """Send a batch."""
        assert self._transport is not None
        self.since = now
        batch = RequestBatch(
            tuple(
                ScoringRequest(
                    each.number, each.form, each.content_type, each.header_length, len(each.body), each.deadline - now
                )
                for each in requests
            )
        )
        self._transport.write(replica_channel.frame(batch, [each.body for each in requests]))

    @property
    def closing(self) -> bool:
        """Whether nothing can be sent any more, although `lost` may not have been called yet."""
        return self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        """Send what is to be sent, and close."""
        assert self._transport is not None
        self._transport.close()

    def _next_frame(self) -> tuple[bytes, bytes] | None:
        begin = replica_channel.LENGTHS.size
        if len(self._buffer) < begin:
            return None
        head, tail = replica_channel.LENGTHS.unpack_from(self._buffer)
        end = begin + head + tail
        if end > replica_channel.LARGEST_FRAME:
            raise ValueError(f"a frame of {end} bytes")
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            frame = bytes(view[begin : begin + head]), bytes(view[begin + head : end])
        del self._buffer[:end]
        return frame

    def _take(self, head: bytes, tail: bytes) -> None:
        message = replica_channel.decode_from_replica(head)
        if isinstance(message, ReplicaReady) != (self.worker is None):
            raise ValueError(f"{type(message).__name__} out of place")
        if isinstance(message, ReplicaReady):
            if message.most < 1:
                raise ValueError(f"it takes {message.most} requests")
            self.worker = message.worker
            self._receiver.ready(self, message)
        else:
            self._receiver.answered(self, message, self._replies(message, tail))

    def _replies(self, message: Answers, tail: bytes) -> dict[int, Reply]:
        assert self.worker is not None
        replies: dict[int, Reply] = {}
        bodies = replica_channel.bodies_of([answer.size for answer in message.answers], tail)
        for answer, body in zip(message.answers, bodies, strict=True):
            fits = answer.size >= 0 and (answer.header_length is None or 0 <= answer.header_length <= answer.size)
            if not (fits and 200 <= answer.status < 600 and _CONTENT_TYPE.fullmatch(answer.content_type)):
                raise ValueError(f"an answer that HTTP cannot carry: {answer}")
            replies[answer.id] = Reply(answer, body, self.worker, message.seconds)
        return replies


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
