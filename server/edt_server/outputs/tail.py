"""Complete lines of one growing file, from a byte offset on.

Never reads more than asked, never gives a line twice, never waits. A line longer than `MAX_LINE` is given in pieces,
so that one endless line cannot take the memory of the server. The last line without a newline is held back until the
writer is known to be gone.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

MAX_LINE = 1 << 20
MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Tail:
    """What was found.

    Attributes:
        lines: (text without its newline, offset just behind the line), in order.
        more: True when the file has complete lines beyond these already.
        changed: time of the file's last change in seconds since the epoch, None when there is no file.
    """

    lines: tuple[tuple[bytes, int], ...]
    more: bool
    changed: float | None


def read_tail(path: Path, offset: int, *, max_lines: int, final: bool) -> Tail:
    """At most `max_lines` lines of `path` behind byte `offset`; `final` says that nobody writes any more."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(MAX_BYTES)
            changed = os.fstat(file.fileno()).st_mtime
            at_end = len(data) < MAX_BYTES
    except (FileNotFoundError, NotADirectoryError):
        return Tail((), False, None)
    lines, rest = split_lines(data, final=final and at_end)
    kept = lines[:max_lines]
    placed: list[tuple[bytes, int]] = []
    for line, length in kept:
        offset += length
        placed.append((line, offset))
    return Tail(tuple(placed), len(lines) > len(kept) or (not at_end and rest < len(data)), changed)


def holds(path: Path, offset: int, length: int, crc: int) -> bool:
    """Whether a file still has the line of `length` bytes (without its end) and checksum `crc` that ended at `offset`.

    Files that can be cut and grow again need this: their offset alone says nothing. A reader that never read a line
    (`length` 0) is told whether the file is that long.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < offset:
                return False
            # What ends a line is not part of it, and need not be there.
            start = max(0, offset - length - 2)
            file.seek(start)
            data = file.read(offset - start)
    except (FileNotFoundError, NotADirectoryError):
        return offset == 0
    return not length or zlib.crc32(data.rstrip(b"\r\n")[-length:]) == crc


def split_lines(data: bytes, *, final: bool) -> tuple[list[tuple[bytes, int]], int]:
    """`data` as (line without its end, bytes it takes), and how many bytes are left behind the last complete line."""
    lines: list[tuple[bytes, int]] = []
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + MAX_LINE + 1)
        if end >= 0:
            text = data[start:end]
            lines.append((text[:-1] if text.endswith(b"\r") else text, end + 1 - start))
            start = end + 1
        elif len(data) - start > MAX_LINE:
            length = _whole_characters(data, start, start + MAX_LINE)
            lines.append((data[start : start + length], length))
            start += length
        elif final:
            lines.append((data[start:], len(data) - start))
            start = len(data)
        else:
            break
    return lines, len(data) - start


def _whole_characters(data: bytes, start: int, end: int) -> int:
    """Length of data[start:end] cut so that no UTF-8 character is torn (at most three bytes shorter)."""
    for back in range(4):
        if data[end - back] & 0xC0 != 0x80:
            return end - back - start
    return end - start
