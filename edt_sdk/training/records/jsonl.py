"""Append JSON lines to a file from one process after another, each of which may be killed at any byte.

One line is one `write` to a file opened for appending. A process that opens the file first cuts off a torn last line.
Readers that need the last lines read from the end, and lines can be removed from the end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

_PIECE = 1 << 16


class JsonLines:
    """Appends to a file, which is created (0600) with the first line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def append(self, data: bytes) -> None:
        """Write one or more complete lines. OSError when the disk has no room for all: none of them is written then."""
        if self._descriptor is None:
            # The last writer may have been killed in the middle of a line.
            cut_torn_line(self._path)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        written = os.write(self._descriptor, data)
        if written != len(data):
            # Remove the part that was written, or the next line would be appended to it.
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise OSError(errno.ENOSPC, "it took only a part of a line", str(self._path))

    def sync(self) -> None:
        """Fsync the file."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file. The next `append` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def backwards(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a file from last to first as (offset, text). A torn last line is skipped."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        start = os.fstat(descriptor).st_size
        held = b""  # from `start` on, in the middle of a line unless `start` is 0
        whole = False  # whether the end of `held` is the end of a line
        while start > 0:
            size = min(_PIECE, start)
            start -= size
            held = os.pread(descriptor, size, start) + held
            if not whole:
                end = held.rfind(b"\n") + 1
                if end == 0:
                    continue
                held, whole = held[:end], True
            begin = len(held)
            while (before := held.rfind(b"\n", 0, begin - 1)) >= 0:
                yield start + before + 1, held[before + 1 : begin - 1]
                begin = before + 1
            held = held[:begin]
        if whole and held:
            yield 0, held[:-1]
    finally:
        os.close(descriptor)


def cut_torn_line(path: Path) -> None:
    """Remove a last line without a newline, which a killed writer or a full disk leaves."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    if size == 0:
        return
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() == b"\n":
            return
    offset, line = next(backwards(path), (0, None))
    os.truncate(path, 0 if line is None else offset + len(line) + 1)


def truncate(path: Path, size: int) -> None:
    """Cut a file to `size` bytes and fsync it. A file that is missing or shorter is left alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if os.fstat(descriptor).st_size > size:
            os.ftruncate(descriptor, size)
            # Otherwise a power cut could bring the removed lines back.
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
