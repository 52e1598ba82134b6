"""Read the last lines of a process's stream files, for the message of a failed job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LINES = 20
_BYTES = 32 * 1024
_LINE = 500


@dataclass(frozen=True, slots=True)
class LastLines:
    """The last lines of a stream. `stream` is the file's name."""

    stream: str
    text: str


def stream_tail(streams: Path, process: str) -> LastLines | None:
    """Return the tail of stderr, or of stdout when stderr is empty. None when both are empty."""
    for stream in ("stderr", "stdout"):
        text = file_tail(streams / f"{process}.{stream}")
        if text:
            return LastLines(f"{process}.{stream}", text)
    return None


def file_tail(path: Path) -> str:
    """Return the `text_tail` of a file, "" when there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BYTES))
            data = file.read()
    except OSError:
        return ""
    return text_tail(data.decode("utf-8", errors="replace"))


def text_tail(text: str) -> str:
    """Return the last non-blank `LINES` lines of a text, with long lines cut."""
    lines = [line.rstrip() for line in text.splitlines()]
    kept = [line if len(line) <= _LINE else f"{line[:_LINE]} …" for line in lines if line]
    return "\n".join(kept[-LINES:])
