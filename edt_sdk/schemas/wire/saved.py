"""The first 512 bytes of a `.ckpt` file: its description, and the proof that the file is whole.

JSON, blanks, a newline. `sha256` covers the header's other fields and the body after it, so a file with any missing or
wrong byte is refused. The engine writes the header, the server lists it.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.regular import open_regular

SIZE = 512
NAME = re.compile(r"(epoch|update)-(\d+)\Z")
SUFFIX = ".ckpt"


class Damaged(Exception):
    """The file is not a whole checkpoint. The text is the reason."""


class Saved(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="edt-checkpoint-1"):
    """The header of a checkpoint.

    Attributes:
        training: number of the training within its job.
        position: place in the schedule that the state belongs to.
        updates: committed updates at that place.
        epoch: the epoch (from 1) that has just ended, None for a rolling checkpoint.
        time: seconds since the epoch (UTC).
        length: length of the body in bytes.
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
        """Return the same header with `sha256`, where `body` is the digest of the body."""
        bare = msgspec.structs.replace(self, sha256="")
        return msgspec.structs.replace(self, sha256=hashlib.sha256(msgspec.json.encode(bare) + body).hexdigest())

    def encoded(self) -> bytes:
        """Return the 512 bytes."""
        return msgspec.json.encode(self).ljust(SIZE - 1) + b"\n"


def decode(data: bytes) -> Saved:
    """Return the header in the first bytes of a file. Raises Damaged when they are none."""
    try:
        header = msgspec.json.decode(data[:SIZE], type=Saved)
    except msgspec.DecodeError:
        raise Damaged("it does not begin like a checkpoint") from None
    # Encoded again and compared, so that a wrong byte in the blanks or an unknown field counts as damage too.
    if header.encoded() != data[:SIZE]:
        raise Damaged("its header is torn")
    return header


def read_header(path: Path, *, within: Path | None = None) -> Saved:
    """Return the header of a file whose length fits it. The body is not read. Raises Damaged or OSError.

    `within` is as in `open_regular`.
    """
    with open_regular(path, within=within) as file:
        header = decode(file.read(SIZE))
        length = os.fstat(file.fileno()).st_size
    # The length is enough for a listing. The engine compares the digest of the whole body when it loads.
    if length != SIZE + header.length:
        raise Damaged(f"{length} of {SIZE + header.length} bytes are there")
    return header
