"""Where the last lines of a growing file begin, found from its end: a log of a week is not read to show its last page.

It is read backwards, block by block, and no further than a kibibyte for each line that is asked for: where lines are
longer than that, fewer of them are shown, and where the last one alone is longer, it is its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edt_server.outputs.tail import MAX_BYTES

_BLOCK = 1 << 18
_A_LINE = 1 << 10


@dataclass(frozen=True, slots=True)
class End:
    """The byte offset behind which the last lines are, and whether there are fewer than were asked for, being long."""

    offset: int
    cut: bool = False


def end_of(path: Path, lines: int, *, most: int | None = None) -> End:
    """Where the last `lines` lines of `path` begin; at 0 for no file.

    What is written behind the last line break, without an end yet, is not counted as a line.

    Args:
        path: the file.
        lines: how many, at least 1.
        most: bytes that are looked at, by default `lines` kibibytes, at least 256 of them and at most 4096.
    """
    if most is None:
        most = min(MAX_BYTES, max(_BLOCK, lines * _A_LINE))
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start, breaks, data = size, 0, b""
            while start and size - start < most and breaks <= lines:
                before = max(0, start - _BLOCK, size - most)
                file.seek(before)
                block = file.read(start - before)
                start, breaks, data = before, breaks + block.count(b"\n"), block + data
    except (FileNotFoundError, NotADirectoryError):
        return End(0)
    if breaks <= lines:
        # Fewer than asked for: all of a small file; of a large one what begins behind the first line break, if any.
        if start == 0:
            return End(0)
        first = data.find(b"\n") + 1
        return End(start if first == len(data) else start + first, cut=True)
    place = len(data)
    for _ in range(lines + 1):
        place = data.rfind(b"\n", 0, place)
    return End(start + place + 1)


def line_at(path: Path, offset: int) -> int:
    """Where the line begins that has byte `offset` of `path`, or that begins there; a very long one at `offset`."""
    try:
        with path.open("rb") as file:
            start = max(0, offset - _BLOCK)
            file.seek(start)
            data = file.read(offset - start)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    place = data.rfind(b"\n") + 1
    return start + place if place or start == 0 else offset
