"""Where the last lines of a growing file begin, found from its end: a log of a week is not read to show its last page.

At most `MOST` bytes are looked at. Where the last line alone is longer, it is its end that is shown.
"""

from __future__ import annotations

from pathlib import Path

MOST = 1 << 18


def end_of(path: Path, lines: int, *, most: int = MOST) -> int:
    """The byte offset behind which `path` has `lines` lines, or as many as fit into `most` bytes; 0 for no file.

    What is written behind the last line break, without an end yet, is not counted as a line.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size - most)
            file.seek(start)
            data = file.read(size - start)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    breaks = data.count(b"\n")
    if breaks <= lines:
        # Fewer than asked for: all of a small file; of a large one what begins behind the first line break, if any.
        whole = start == 0
        first = data.find(b"\n") + 1
        return start if whole or first == len(data) else start + first
    place = len(data)
    for _ in range(lines + 1):
        place = data.rfind(b"\n", 0, place)
    return start + place + 1
