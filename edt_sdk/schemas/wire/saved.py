"""The first 512 bytes of a `.ckpt` file: what it is, and whether all of it is there.

JSON, blanks, a newline. `sha256` covers the header's other fields and the body behind it, so that a file is either the
one that was written or refused, whichever byte of it is missing or wrong. The engine writes it, the server lists it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

SIZE = 512
NAME = re.compile(r"(epoch|update)-(\d+)\Z")
SUFFIX = ".ckpt"


class Damaged(Exception):
    """A file is not a whole checkpoint; the text says why."""


class Saved(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="edt-checkpoint-1"):
    """A header.

    Attributes:
        training: number of the training within its job.
        position: place in the schedule that the state belongs to.
        updates: how many updates are committed there.
        epoch: the epoch (from 1) that has just ended, None for a rolling one.
        time: seconds since the epoch (UTC).
        length: of the body, in bytes.
        sha256: see above, hexadecimal.
    """

    training: int
    position: int
    updates: int
    epoch: int | None
    time: float
    length: int
    sha256: str = ""

    def sealed(self, body: bytes) -> Saved:
        """The same with `sha256`; `body` is the digest of the body."""
        bare = msgspec.structs.replace(self, sha256="")
        return msgspec.structs.replace(self, sha256=hashlib.sha256(msgspec.json.encode(bare) + body).hexdigest())

    def encoded(self) -> bytes:
        """The 512 bytes."""
        return msgspec.json.encode(self).ljust(SIZE - 1) + b"\n"


def decode(data: bytes) -> Saved:
    """A header from the first bytes of a file; Damaged when they are none."""
    try:
        header = msgspec.json.decode(data[:SIZE], type=Saved)
    except msgspec.DecodeError:
        raise Damaged("it does not begin like a checkpoint") from None
    if header.encoded() != data[:SIZE]:
        raise Damaged("its header is torn")
    return header


def read_header(path: Path) -> Saved:
    """The header of a file whose length fits it. The body is not read. Damaged, or OSError."""
    with path.open("rb") as file:
        header = decode(file.read(SIZE))
    length = path.stat().st_size
    if length != SIZE + header.length:
        raise Damaged(f"{length} of {SIZE + header.length} bytes are there")
    return header
