"""What `torch.save` makes of something, in an open file: counted, hashed, and failing in the disk's own words."""

from __future__ import annotations

import hashlib
from typing import Any, BinaryIO

import torch


class Dump:
    """Writes `content` to `file` where that stands.

    Args:
        content: tensors in plain containers, in storage of their own.
        file: open for writing; OSError is what it raises, where torch would tell of a consequence.

    Attributes:
        length: bytes written.
        sha256: their digest, 32 bytes.
    """

    def __init__(self, content: Any, file: BinaryIO) -> None:
        target = _Target(file)
        try:
            torch.save(content, target)  # type: ignore[arg-type]  # all it needs is write and flush
        except Exception:
            if target.error is not None:
                raise target.error from None
            raise
        self.length = target.length
        self.sha256 = target.hash.digest()


class _Target:
    """The part of a file object that torch writes to."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.length = 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise
        self.hash.update(data)
        self.length += len(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()
