"""The edge's end of the channel, driven by a test, and requests that need no process."""

from __future__ import annotations

import io
import itertools
import json
import socket
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edt_sdk.schemas.serving.replica_channel import (
    LENGTHS,
    Answer,
    Answers,
    ReplicaReady,
    RequestBatch,
    ScoringRequest,
    bodies_of,
    decode_from_replica,
    frame,
)
from tests.waiting import LIMIT

_ids = itertools.count(1)


def request(
    body: bytes | Any, form: str = "simple", content_type: str = "application/json", header: int | None = None
) -> tuple[ScoringRequest, bytes]:
    """A request and its body, which is JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ScoringRequest(next(_ids), form, content_type, header, len(content), 30.0), content


def npy(array: Any) -> bytes:
    """The body of a request with this array."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def v2(*inputs: dict[str, Any], **more: Any) -> tuple[ScoringRequest, bytes]:
    return request({"inputs": inputs, **more}, "v2")


def tensor(name: str, shape: Any, datatype: str, data: Any, **parameters: Any) -> dict[str, Any]:
    found = {"name": name, "shape": shape, "datatype": datatype, "parameters": parameters}
    return found if data is None else {**found, "data": data}


class Reply(msgspec.Struct):
    """An answer with its body."""

    answer: Answer
    body: bytes

    @property
    def status(self) -> int:
        return self.answer.status

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


def replies(answers: Answers, bodies: list[Any]) -> list[Reply]:
    return [Reply(answer, bytes(body)) for answer, body in zip(answers.answers, bodies, strict=True)]


class Edge:
    """Listens where replicas connect, and takes one."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(LIMIT)
        self._path = path
        self._connection: socket.socket | None = None

    def accept(self) -> ReplicaReady:
        """Wait for a replica and for its first message."""
        if self._connection is not None:
            self._connection.close()
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(LIMIT)
        ready = self._receive()[0]
        assert isinstance(ready, ReplicaReady)
        return ready

    def send(self, *requests: tuple[ScoringRequest, bytes]) -> None:
        assert self._connection is not None
        batch = RequestBatch(tuple(each for each, _ in requests))
        self._connection.sendall(frame(batch, [body for _, body in requests]))

    def send_bytes(self, content: bytes) -> None:
        assert self._connection is not None
        self._connection.sendall(content)

    def hear(self) -> tuple[Answers, list[Reply]]:
        answers, tail = self._receive()
        assert isinstance(answers, Answers)
        return answers, replies(answers, bodies_of([each.size for each in answers.answers], tail))

    def ask(self, *requests: tuple[ScoringRequest, bytes]) -> list[Reply]:
        """Send a batch, and return the answers to all of its requests."""
        self.send(*requests)
        _, found = self.hear()
        assert [each.answer.id for each in found] == [each.id for each, _ in requests]
        return found

    @property
    def ended(self) -> bool:
        """Wait for the next bytes or for the end of the connection. True for the end."""
        assert self._connection is not None
        try:
            return self._connection.recv(1) == b""
        except ConnectionResetError:  # it has left something unread
            return True

    def close(self) -> None:
        """End as a killed edge does, and leave the file of the socket."""
        self._listener.close()
        if self._connection is not None:
            self._connection.close()

    def _receive(self) -> tuple[Any, memoryview]:
        head, tail = LENGTHS.unpack(self._exactly(LENGTHS.size))
        content = self._exactly(head + tail)
        return decode_from_replica(content[:head]), memoryview(content)[head:]

    def _exactly(self, length: int) -> bytes:
        assert self._connection is not None
        parts = []
        while length:
            part = self._connection.recv(length)
            assert part, "the replica has closed the connection"
            parts.append(part)
            length -= len(part)
        return b"".join(parts)
