"""Talk to the edge from one replica (`edt_sdk.schemas.serving.replica_channel`).

The edge may start later than the replica, or start again, so a replica connects again and again. A drained replica
takes nothing more: it shuts down its reading end, so the edge cannot hand it a batch that it would not answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence

import msgspec

from edt_sdk.schemas.serving.replica_channel import (
    LARGEST_FRAME,
    LENGTHS,
    Answers,
    ReplicaReady,
    ScoringRequest,
    bodies_of,
    decode_to_replica,
    frame,
)

log = logging.getLogger(__name__)

# Computes the answers of a batch.
Answering = Callable[[Sequence[ScoringRequest], Sequence[memoryview]], tuple[Answers, list[bytes]]]
_RETRY = 0.1


class EdgeConnection:
    """Owns the connection of a replica. `path` is the socket of its revision, where the edge listens."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._drained = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        # A process that the model's code forks must not keep the connection open after this process is gone.
        os.register_at_fork(after_in_child=self._close)

    def drain(self) -> None:
        """Let `serve` return when the batch in hand is answered. Call it from another thread."""
        with self._lock:
            self._drained.set()
            if self._socket is not None:
                with contextlib.suppress(OSError):  # the edge is gone
                    self._socket.shutdown(socket.SHUT_RD)

    def serve(self, ready: ReplicaReady, answering: Answering) -> None:
        """Answer batches until this replica is drained."""
        while not self._drained.is_set():
            try:
                self._connect()
                self._send(frame(ready))
                while self._answer(answering):
                    pass
            except OSError:
                pass  # there is no edge, or no longer
            except (ValueError, msgspec.MsgspecError) as wrong:
                log.warning("The edge sent what is no batch, so the replica connects again: %s", wrong)
            self._close()
            self._drained.wait(_RETRY)

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = connection
        connection.connect(self._path)
        # Otherwise a drain during the connect would have shut down a socket without a peer.
        with self._lock:
            if self._drained.is_set():
                connection.shutdown(socket.SHUT_RD)

    def _answer(self, answering: Answering) -> bool:
        """Answer one batch. Return False where none follows."""
        lengths = self._receive(LENGTHS.size)
        if lengths is None:
            return False
        head_length, tail_length = LENGTHS.unpack(lengths)
        if head_length + tail_length > LARGEST_FRAME:
            raise ValueError(f"a frame of {head_length + tail_length} bytes")
        content = self._receive(head_length + tail_length)
        if content is None:
            return False
        requests = decode_to_replica(bytes(content[:head_length])).requests
        bodies = bodies_of([request.size for request in requests], memoryview(content)[head_length:])
        answers, written = answering(requests, bodies)
        if self._drained.is_set():
            answers = msgspec.structs.replace(answers, leaving=True)
        self._send(frame(answers, written))
        return not answers.leaving

    def _receive(self, length: int) -> bytearray | None:
        """Return the next bytes, None at the end of the connection."""
        assert self._socket is not None
        content = bytearray(length)
        rest = memoryview(content)
        while rest:
            count = self._socket.recv_into(rest)
            if count == 0:
                return None
            rest = rest[count:]
        return content

    def _send(self, content: bytes) -> None:
        assert self._socket is not None
        self._socket.sendall(content)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
