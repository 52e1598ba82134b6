"""A replica without a model, on a plain socket: it answers what a test wants, or dies.

As a program, `python replicas.py <socket>`, it answers each request with its own body, for `benchmarks/serving.py`.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from edt_sdk.schemas.serving.replica_channel import (
    LENGTHS,
    Answer,
    Answers,
    ReplicaReady,
    RequestBatch,
    ScoringRequest,
    Signature,
    bodies_of,
    decode_to_replica,
    frame,
)

LIMIT = 120.0


class Die(Exception):
    """The replica closes its connection instead of answering."""


@dataclass
class Said:
    """An answer that is more than a body."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"
    header_length: int | None = None


Act = Callable[[ScoringRequest, bytes], "bytes | Said"]


def echo(request: ScoringRequest, body: bytes) -> bytes | Said:
    """Answer with the body. One that is `die` is the replica's death."""
    if body == b"die":
        raise Die
    return body


class Replica(threading.Thread):
    """A replica that connects as soon as the edge listens, and again whenever the edge has begun anew.

    Attributes:
        batches: the bodies of each batch that it was given.
        frames: what it sends instead of the answers to the next batches, as it is.
        deaths: how often it has died.
    """

    def __init__(
        self,
        path: str,
        worker: int = 0,
        *,
        most: int = 8,
        act: Act = echo,
        signature: Signature | None = None,
        again: bool = True,
    ) -> None:
        super().__init__(daemon=True, name=f"replica {worker}")
        self.batches: list[list[bytes]] = []
        self.frames: list[bytes] = []
        self.deaths = 0
        self.connections = 0
        self.path, self.worker = path, worker
        self._ready = frame(ReplicaReady(worker, worker, most, signature))
        self._act, self._again = act, again
        self._leaving = self._ended = False
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Answer until closed."""
        deadline = time.monotonic() + LIMIT
        while not self._ended and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as self._socket:
                self._socket.connect(self.path)
                deadline = time.monotonic() + LIMIT
                self.connections += 1
                self._socket.sendall(self._ready)
                try:
                    self._answer(self._socket)
                except Die:
                    self.deaths += 1
                except EOFError:
                    pass
                self._ended |= not self._again
            time.sleep(0.01)  # the edge is about to listen

    def leave(self) -> None:
        """Answer the batch that there is, or the next one, and take nothing more."""
        self._leaving = True

    def close(self) -> None:
        """RequestEnd, whatever it does."""
        self._ended = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self.join(LIMIT)
        assert not self.is_alive()

    def _answer(self, connection: socket.socket) -> None:
        while True:
            batch, bodies = _received(connection)
            self.batches.append(bodies)
            if self.frames:
                connection.sendall(self.frames.pop(0))
                continue
            begun = time.perf_counter()
            said = [self._act(request, body) for request, body in zip(batch.requests, bodies, strict=True)]
            seconds, leaving = time.perf_counter() - begun, self._leaving
            made = [each if isinstance(each, Said) else Said(each) for each in said]
            answers = tuple(
                Answer(request.id, each.status, each.content_type, each.header_length, len(each.body))
                for request, each in zip(batch.requests, made, strict=True)
            )
            connection.sendall(frame(Answers(answers, len(said), seconds, leaving), [each.body for each in made]))
            if leaving:
                self._ended = True
                return


def _received(connection: socket.socket) -> tuple[RequestBatch, list[bytes]]:
    head, tail = LENGTHS.unpack(_exactly(connection, LENGTHS.size))
    batch = decode_to_replica(_exactly(connection, head))
    return batch, [
        bytes(each) for each in bodies_of([each.size for each in batch.requests], _exactly(connection, tail))
    ]


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        if not (read := connection.recv_into(view[at:])):
            raise EOFError
        at += read
    return bytes(data)


if __name__ == "__main__":
    Replica(sys.argv[1], most=32).run()
