"""Read a growing file from a byte offset on, find its last lines from its end, and hand offsets out as a cursor.

A read never takes more than asked, never gives a line twice and never waits. A line longer than `MAX_LINE` is given in
pieces, so that one endless line cannot fill the memory of the server. The last line without a newline is held back
until its writer is known to be gone.

The last lines are found backwards, block by block, and no further than a kibibyte for each line that is asked for, so
that the log of a week is not read to show its last page. Where lines are longer than that, fewer of them are found.

A cursor is an opaque, URL-safe text that the next request hands back. It holds byte offsets by file, so a reader can go
on at any place, also on another server over the same files. It is neither secret nor trusted: keys and offsets are
checked where the files are read.
"""

from __future__ import annotations

import base64
import binascii
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire.regular import open_regular

MAX_LINE = 1 << 20
MAX_BYTES = 4 << 20
_BLOCK = 1 << 18
_A_LINE = 1 << 10
_decoder: msgspec.json.Decoder[dict[str, int]] = msgspec.json.Decoder(dict[str, int])


def to_cursor(offsets: Mapping[str, int]) -> str:
    """Return the cursor for these offsets (bytes by file key), "" for a reader that has read nothing."""
    # Sorted, so that the same place always has the same cursor.
    read = {key: value for key, value in sorted(offsets.items()) if value}
    return base64.urlsafe_b64encode(msgspec.json.encode(read)).decode().rstrip("=") if read else ""


def from_cursor(cursor: str) -> dict[str, int]:
    """Return the offsets by file key. Raises InvalidRequest for a text that is no cursor."""
    if not cursor:
        return {}
    try:
        # Without `validate` foreign characters are skipped, and a damaged cursor would silently mean another place.
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        offsets = _decoder.decode(data)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        # A value that the check below refuses: all damaged cursors get the same error.
        offsets = {"": -1}
    # Larger numbers are no places in a file for the system either.
    if not all(0 <= value < 1 << 63 for value in offsets.values()):
        raise InvalidRequest(
            f"{cursor!r} is not a cursor.",
            hint="Give the 'next' of an earlier answer unchanged, or nothing.",
            field="after",
        )
    return offsets


@dataclass(frozen=True, slots=True)
class Tail:
    """The lines read from a file, in order, each as (text without its newline, offset after the line).

    `more` when the file has further complete lines already. `changed` is the time of the file's last change in seconds
    since the epoch, None when there is no file.
    """

    lines: tuple[tuple[bytes, int], ...]
    more: bool
    changed: float | None


def read_tail(
    path: Path, offset: int, *, max_lines: int, final: bool, within: Path | None = None, max_bytes: int = MAX_BYTES
) -> Tail:
    """Return at most `max_lines` lines of `path` from byte `offset` on. `final` means that its writer is gone.

    Here and below `within` is as in `open_regular`. A line that does not fit into `max_bytes` is given in pieces.
    """
    try:
        with open_regular(path, within=within) as file:
            file.seek(offset)
            data = file.read(max_bytes)
            # After the read, so that no line is newer than this time, and from the descriptor, so that it is the same
            # file.
            changed = os.fstat(file.fileno()).st_mtime
            at_end = len(data) < max_bytes
    except FileNotFoundError:
        return Tail((), False, None)
    # A read that was cut at `max_bytes` ends within a line, and the next read has the rest. One line more than is
    # wanted shows that there are more: all lines of a file of line breaks would take sixty times its memory.
    most, max_line = max_lines + 1, min(MAX_LINE, max_bytes - 1)
    lines, rest = split_lines(data, final=final and at_end, most=most, max_line=max_line)
    kept = lines[:max_lines]
    placed: list[tuple[bytes, int]] = []
    for line, length in kept:
        offset += length
        placed.append((line, offset))
    # A last line without an end is no reason for another read, unless the read itself was cut.
    return Tail(tuple(placed), len(lines) > len(kept) or (not at_end and rest < len(data)), changed)


def holds(path: Path, offset: int, length: int, crc: int) -> bool:
    """Return whether a file still has the line that ended at `offset`.

    The line has `length` bytes (without its end) and checksum `crc`. Files that can be cut and grow again need this,
    because an offset alone cannot show that they did. For a reader that never read a line (`length` 0), return whether
    the file is that long.
    """
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size < offset:
                return False
            # The line's end is not counted in `length` and may be missing, so read two bytes more for "\r\n".
            start = max(0, offset - length - 2)
            file.seek(start)
            data = file.read(offset - start)
    except FileNotFoundError:
        return offset == 0
    return not length or zlib.crc32(data.rstrip(b"\r\n")[-length:]) == crc


def split_lines(
    data: bytes, *, final: bool, most: int = 1 << 62, max_line: int = MAX_LINE
) -> tuple[list[tuple[bytes, int]], int]:
    """Return the lines of `data` as (line without its end, bytes it takes), and the bytes left after the last one."""
    lines: list[tuple[bytes, int]] = []
    start = 0
    while start < len(data) and len(lines) < most:
        # Bounded: without an upper end each piece of an endless line would search all bytes after it.
        end = data.find(b"\n", start, start + max_line + 1)
        if end >= 0:
            text = data[start:end]
            lines.append((text[:-1] if text.endswith(b"\r") else text, end + 1 - start))
            start = end + 1
        elif len(data) - start > max_line:
            length = _whole_characters(data, start, start + max_line)
            lines.append((data[start : start + length], length))
            start += length
        elif final:
            lines.append((data[start:], len(data) - start))
            start = len(data)
        else:
            break
    return lines, len(data) - start


def _whole_characters(data: bytes, start: int, end: int) -> int:
    """Return the length of data[start:end], cut so that no UTF-8 character is torn (at most three bytes shorter)."""
    # A UTF-8 character has at most four bytes, and its later bytes start with the bits 10.
    for back in range(4):
        if data[end - back] & 0xC0 != 0x80:
            return end - back - start
    return end - start


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The byte offset at which the last lines start. `cut` when they are fewer than requested because they are long."""

    offset: int
    cut: bool = False


def end_of(path: Path, lines: int, *, within: Path | None = None, max_bytes: int = MAX_BYTES) -> LogEnd:
    """Return where the last `lines` (≥ 1) lines of `path` start, 0 when there is no file.

    The text after the last line break, which has no end yet, does not count as a line.
    """
    most = min(max_bytes, max(_BLOCK, lines * _A_LINE))
    try:
        with open_regular(path, within=within) as file:
            size = file.seek(0, 2)
            start, breaks, data = size, 0, b""
            # One line break more than lines, because the break before the first line marks its start.
            while start and size - start < most and breaks <= lines:
                before = max(0, start - _BLOCK, size - most)
                file.seek(before)
                block = file.read(start - before)
                start, breaks, data = before, breaks + block.count(b"\n"), block + data
    except FileNotFoundError:
        return LogEnd(0)
    if breaks <= lines:
        # There are fewer lines than requested. A small file is taken as a whole. For a large one, start after the first
        # line break that was found, if any.
        if start == 0:
            return LogEnd(0)
        first = data.find(b"\n") + 1
        return LogEnd(start if first == len(data) else start + first, cut=True)
    place = len(data)
    for _ in range(lines + 1):
        place = data.rfind(b"\n", 0, place)
    return LogEnd(start + place + 1)


def line_at(path: Path, offset: int, *, within: Path | None = None) -> int:
    """Return where the line with byte `offset` of `path` starts. For a very long line, return `offset`."""
    try:
        with open_regular(path, within=within) as file:
            start = max(0, offset - _BLOCK)
            file.seek(start)
            data = file.read(offset - start)
    except FileNotFoundError:
        return 0
    place = data.rfind(b"\n") + 1
    return start + place if place or start == 0 else offset
