"""The channel between the edge, which takes requests, and the replicas of a revision, which answer them.

A Unix socket per revision, `serve.sock` in the runtime folder of its job (0700). The edge listens, a replica connects
as soon as it is ready to answer, and connects again when the edge has begun anew. A closed connection means that the
other end is gone, so no message says so.

A message is a frame: the lengths of its head and of its tail (two big-endian numbers of 4 bytes), the head as
MessagePack, and the tail, the bodies that the head names, one after the other. A body is what came over HTTP, or goes
there: the edge reads none of them.

Life of a connection::

    replica                         edge
      │ ReplicaReady(most=32) ──────▶ │   requests arrive
      │ ◀────── RequestBatch([7, 8])  │
      │ Answers([7, 8]) ────────────▶ │   the replica is free again
      │ ◀───────── RequestBatch([9])  │
      │  … its slot is revoked …      │
      │ Answers([9], leaving) ──────▶ │   no batch follows
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

SOCKET = "serve.sock"
LENGTHS = struct.Struct(">II")
# A peer that announces more is broken. The edge accepts no request that comes near it.
LARGEST_FRAME = 1 << 30


class ReplicaReady(msgspec.Struct, frozen=True, tag=True):
    """The first message of a connection: the replica is free.

    Attributes:
        worker: its number in the job.
        slot: id of its slot.
        most: requests that it takes at once.
        signature: what it expects and returns, as in `Signature`, None where only its code knows.
    """

    worker: int
    slot: int
    most: int
    signature: Signature | None = None


class Tensor(msgspec.Struct, frozen=True):
    """A named array. `shape` has -1 where the size is free, the first of which is the row. `datatype` is as in v2."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Signature(msgspec.Struct, frozen=True):
    """The arrays that a version takes and returns."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] = ()


class ScoringRequest(msgspec.Struct, frozen=True):
    """A request of a batch.

    Attributes:
        id: number that the edge gave it.
        form: how its body is to be read, and its answer to be written: "v2", "simple", "invocations" or "verbatim".
        content_type: of its body, as sent.
        header_length: bytes of the JSON before the binary tensors of a v2 body, None where there are none.
        size: bytes of its body.
        within: seconds from now until the edge gives it up.
    """

    id: int
    form: str
    content_type: str
    header_length: int | None
    size: int
    within: float


class RequestBatch(msgspec.Struct, frozen=True, tag=True):
    """Requests for a free replica, which answers all of them with one message."""

    requests: tuple[ScoringRequest, ...]


class Answer(msgspec.Struct, frozen=True):
    """The answer to one request.

    Attributes:
        status: of HTTP: 200, 400 for a request that the model cannot take, 500 when its code failed.
        content_type: of its body.
        header_length: as in `ScoringRequest`, for a v2 answer with binary tensors.
        size: bytes of its body.
    """

    id: int
    status: int
    content_type: str
    header_length: int | None
    size: int


class Answers(msgspec.Struct, frozen=True, tag=True):
    """All answers of a batch.

    Attributes:
        rows: rows that were computed, without those that only fill up.
        seconds: that the model took.
        leaving: the replica takes no further batch and closes the connection.
    """

    answers: tuple[Answer, ...]
    rows: int
    seconds: float
    leaving: bool = False


FromReplica = ReplicaReady | Answers
ToReplica = RequestBatch
decode_from_replica: Callable[[bytes], FromReplica] = msgspec.msgpack.Decoder(FromReplica).decode
decode_to_replica: Callable[[bytes], ToReplica] = msgspec.msgpack.Decoder(ToReplica).decode
_encode = msgspec.msgpack.Encoder().encode


def socket_of(runtime_dir: str | Path) -> Path:
    """Return the place of the socket of a revision, from the runtime folder of its job."""
    return Path(runtime_dir) / SOCKET


def frame(head: FromReplica | ToReplica, bodies: Sequence[bytes] = ()) -> bytes:
    """Return a message with its bodies as one frame."""
    encoded = _encode(head)
    return b"".join((LENGTHS.pack(len(encoded), sum(map(len, bodies))), encoded, *bodies))


def bodies_of(sizes: Sequence[int], tail: bytes | memoryview) -> list[memoryview]:
    """Return the bodies of a frame. ValueError when they do not fill it."""
    view, bodies, at = memoryview(tail), [], 0
    for size in sizes:
        bodies.append(view[at : at + size])
        at += size
    if at != len(view):
        raise ValueError(f"bodies of {at} bytes in a tail of {len(view)}")
    return bodies
