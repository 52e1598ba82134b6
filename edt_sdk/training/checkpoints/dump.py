"""Run `torch.save` into an open file, count and hash the bytes, and raise the disk's own error."""

from __future__ import annotations

import hashlib
from typing import Any, BinaryIO

import torch


class Dump:
    """Writes `content` to `file` at the current offset.

    Args:
        content: tensors in plain containers, each in separate storage.
        file: open for writing. Its OSError is raised instead of torch's own error.

    Attributes:
        length: number of bytes written.
        sha256: digest of these bytes, 32 bytes.
    """

    def __init__(self, content: Any, file: BinaryIO) -> None:
        target = _Target(file)
        try:
            torch.save(content, target)  # type: ignore[arg-type]  # all it needs is write and flush
        except Exception:
            # torch turns a failed write into a RuntimeError of its own, which hides that the disk is full.
            if target.error is not None:
                raise target.error from None
            raise
        self.length = target.length
        self.sha256 = target.hash.digest()


class _Target:
    """Counts and hashes what torch writes. Torch needs only `write` and `flush` of a file object."""

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
