"""Run `torch.save` into an open file, count and hash the bytes, and raise the disk's own error."""

from __future__ import annotations

import hashlib
from typing import Any, BinaryIO

import torch


class Dump:
    """Writes `content` to `file` at the current offset. `length` and `hash` are those of the bytes written.

    The tensors in the content must each have separate storage. Torch needs only `write` and `flush` of a file object.
    """

    def __init__(self, content: Any, file: BinaryIO) -> None:
        self._file = file
        self._error: OSError | None = None
        self.hash = hashlib.sha256()
        self.length = 0
        try:
            torch.save(content, self)  # type: ignore[arg-type]
        except Exception:
            # torch turns a failed write into a RuntimeError of its own, which hides that the disk is full.
            if self._error is not None:
                raise self._error from None
            raise

    def write(self, data: bytes) -> int:
        """Write, count and hash a piece."""
        try:
            self._file.write(data)
        except OSError as error:
            self._error = self._error or error
            raise
        self.hash.update(data)
        self.length += len(data)
        return len(data)

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()
