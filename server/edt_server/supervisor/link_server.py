"""Serve the supervisor's end of the link: a Unix socket that only the job's own processes may use.

The kernel identifies the peer (SO_PEERCRED): it must have the uid of the job's processes and belong to the session of a
process that was started here, and the worker number in a message must agree. There is one connection per process.
Malformed input closes the connection. The link sends nothing on its own and decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.wire import link
from edt_server.supervisor.state_machines.events import DRIVER
from edt_server.system.processes import pids_here

log = logging.getLogger(__name__)

# A user's traceback or error message may be long.
MAX_LINE = 16 << 20
DRAIN_SECONDS = 2.0
_PATH_LIMIT = 107
_UCRED = struct.Struct("3i")


class LinkServer:
    """The connections of the driver and the workers, by their key.

    `leader` returns the key of the process that leads a session, None when it belongs to no process of the job.
    `on_message` gets each message, the hello included, and `on_lost` the reason when a connection has closed. The
    job's processes have this process's uid, or that of `owner`, a user and a group.
    """

    def __init__(
        self,
        path: Path,
        *,
        leader: Callable[[int], int | None],
        on_message: Callable[[int, link.Upward], None],
        on_lost: Callable[[int, str], None],
        owner: tuple[int, int] | None = None,
    ) -> None:
        self._path = path
        self._owner = owner
        self._leader = leader
        self._on_message = on_message
        self._on_lost = on_lost
        self._server: asyncio.Server | None = None
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._closed: dict[int, asyncio.Event] = {}

    async def start(self) -> None:
        """Listen. EdtError when the path is too long for a Unix socket."""
        if len(os.fsencode(self._path)) > _PATH_LIMIT:
            raise EdtError(
                f"The link's path {self._path} is longer than a Unix socket's may be ({_PATH_LIMIT} bytes).",
                hint="Give the server a shorter runtime folder (JUPYTER_RUNTIME_DIR).",
            )
        self._path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        # Before it has the name, in whose place the job's processes on another host of this machine could put a link.
        os.fchmod(listening.fileno(), 0o600)
        listening.bind(os.fspath(self._path))
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_LINE)
        if self._owner is not None:
            # Not the account's own: it could put another socket in its place.
            os.chown(self._path, -1, self._owner[1])
            self._path.chmod(0o660)

    async def stop(self) -> None:
        """Close everything and remove the socket."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers.values()):
            writer.close()
        for closed in self._closed.values():
            await closed.wait()
        self._path.unlink(missing_ok=True)

    def send(self, key: int, message: link.Downward) -> bool:
        """Send to a process. Return False when it has no link (its exit will be seen)."""
        writer = self._writers.get(key)
        if writer is None or writer.is_closing():
            return False
        writer.write(link.encode(message))
        return True

    def forget(self, key: int) -> None:
        """Record that the process is reaped: another process with this key may connect."""
        writer = self._writers.pop(key, None)
        if writer is not None:
            writer.close()  # held open by a descendant
        self._closed.pop(key, None)

    async def drained(self, key: int) -> None:
        """Return when all messages of an exited process were given to `on_message`."""
        for _ in range(4):
            # Its connection may be accepted, and its first lines read, only in the next rounds of the loop.
            await asyncio.sleep(0)
        closed = self._closed.get(key)
        if closed is not None:
            try:
                async with asyncio.timeout(DRAIN_SECONDS):
                    await closed.wait()
            except TimeoutError:
                log.warning("the link of process %d is held open by a process it left behind", key)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, key = self._peer(writer.get_extra_info("socket"))
        if key is None or key in self._closed:
            log.warning("connection refused on the link: %s", "not ours" if key is None else f"second one of {key}")
            writer.close()
            return
        closed = self._closed[key] = asyncio.Event()
        self._writers[key] = writer
        why = "it ended the connection"
        try:
            why = await self._listen(key, _Numbers(pid), reader)
        except ConnectionError as wrong:
            why = str(wrong)
        finally:
            writer.close()
            closed.set()
            if self._writers.get(key) is writer:
                del self._writers[key]
                self._on_lost(key, why)

    async def _listen(self, key: int, numbers: _Numbers, reader: asyncio.StreamReader) -> str:
        greeted = False
        while True:
            try:
                line = await reader.readline()
                if not line.endswith(b"\n"):
                    return "it closed the connection"
                message = link.decode_upward(line)
            except (ValueError, msgspec.MsgspecError) as wrong:
                log.warning("nonsense on the link, process=%d: %s", key, type(wrong).__name__)
                return "it sent something that is no message"
            if _speaker(message) != key or isinstance(message, link.DriverHello | link.WorkerHello) == greeted:
                log.warning("message out of place on the link, process=%d: %s", key, type(message).__name__)
                return f"it sent a {type(message).__name__} that is not its own to send"
            greeted = True
            self._on_message(key, numbers.translate(message))

    def _peer(self, connection: socket.socket) -> tuple[int, int | None]:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, _ = _UCRED.unpack(credentials)
        if uid != (os.geteuid() if self._owner is None else self._owner[0]):
            return pid, None
        try:
            # The session and not the pid: the job's interpreter may be a script that starts the real one. The leader is
            # not reaped before its link is read, so the number cannot be another session's.
            return pid, self._leader(os.getsid(pid))
        except ProcessLookupError:
            return pid, None


class _Numbers:
    """The pids of one process and its children, as this process sees them: in a sandbox they have others."""

    def __init__(self, peer: int) -> None:
        self._peer = peer
        self._known: dict[int, int] = {}

    def translate(self, message: link.Upward) -> link.Upward:
        """Return the message with the pids that are valid here."""
        match message:
            case link.WorkerHello() | link.DriverHello():
                return msgspec.structs.replace(message, pid=self._peer)
            case link.Began(pids=pids) if pids:
                self._known |= pids_here(pids, self._peer)
                return msgspec.structs.replace(message, pids=tuple(self._known.get(pid, pid) for pid in pids))
            case link.Crashed(pid=pid):
                return msgspec.structs.replace(message, pid=self._known.get(pid, pid))
            case _:
                return message


def _speaker(message: link.Upward) -> int:
    match message:
        case link.DriverHello() | link.TrainRequest() | link.Scaled() | link.Failed(worker=None):
            return DRIVER
        case _:
            assert message.worker is not None
            return message.worker
