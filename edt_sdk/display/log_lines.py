"""Display lines of a log as HTML: the newest lines, search matches, and bounded output. Pure.

A line may have a megabyte, there may be a million lines, and they may hold any program output. So escape sequences are
removed, a progress bar is reduced to its last state, and a long line is cut with a note.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from html import escape

import msgspec

from edt_sdk.display.log_line import LogLine
from edt_sdk.formatting.html_table import BAD, GREY, note
from edt_sdk.formatting.number_words import clock, zone

KEPT = 5000
SHOWN = 300
LONGEST = 2000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def plain(text: str) -> str:
    """Return a line as it would look on a terminal, cut to `LONGEST` characters."""
    whole = len(text)
    # Limit the input before the regular expressions: only the start of a line is shown, but it may have a megabyte.
    text = text[-LONGEST * 8 :] if "\r" in text else text[: LONGEST * 8]
    states = [state for state in _ESCAPES.sub("", text).split("\r") if state]
    text = _CONTROLS.sub("", states[-1] if states else "")
    if len(text) > LONGEST or (whole > LONGEST * 8 and len(states) < 2):
        return f"{text[:LONGEST]} … (cut; the line has {whole:,} characters)"
    return text


class LogLines:
    """Keeps the newest `KEPT` lines of a log."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lines: deque[LogLine] = deque(maxlen=kept)
        self.dropped = False

    def add(self, lines: Iterable[LogLine]) -> int:
        """Add lines and return their number."""
        count = 0
        for line in lines:
            self.dropped = self.dropped or len(self._lines) == self._lines.maxlen
            # Keep only what can be shown: 5000 lines with a megabyte each would fill the kernel's memory.
            self._lines.append(msgspec.structs.replace(line, text=plain(line.text)))
            count += 1
        return count

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def workers(self) -> list[int]:
        """Return the numbers of the workers that wrote the lines."""
        return sorted({line.worker for line in self._lines if line.worker is not None})

    def matching(self, search: str) -> list[LogLine]:
        """Return the lines that contain `search`, ignoring case. "" matches all."""
        wanted = search.casefold()
        return [line for line in self._lines if wanted in str(line).casefold()]


def log_html(lines: Sequence[LogLine], *, search: str = "", shown: int = SHOWN) -> str:
    """Return the last lines with time and origin. Errors have a mark as well as a colour."""
    rows = "".join(_row(line, search) for line in lines[-shown:])
    return f'<pre style="margin: 0; white-space: pre-wrap; overflow-wrap: anywhere">{rows}</pre>'


def log_words(log: LogLines, found: int, search: str, *, shown: int = SHOWN, earlier: bool = False) -> str:
    """Return a sentence about the shown part of the log.

    Args:
        log: the lines.
        found: how many of them match.
        search: the search text.
        shown: how many are shown at most.
        earlier: the server has older lines.
    """
    if not len(log):
        return note("Nothing has been written yet.")
    of = (
        f"the last {len(log):,} lines" if earlier or log.dropped else f"{len(log):,} line{'' if len(log) == 1 else 's'}"
    )
    if search and not found:
        return note(f"“{search}” is not in {of}. job.logs() has every line.")
    text = f"{found:,} of {of} contain “{search}”" if search else of[:1].upper() + of[1:]
    if found > shown:
        text += f", of which the newest {shown} are shown"
    return note(f"{text}. Times are {zone()}; ✘ marks what went to stderr.")


def _row(line: LogLine, search: str) -> str:
    who = "driver" if line.worker is None else f"worker {line.worker}"
    mark = f'<span style="color: {BAD}">✘</span>' if line.err else " "
    head = f'<span style="color: {GREY}">{clock(line.time)} {who:<9}</span> {mark} '
    return f"{head}{_marked(line.text, search)}\n"


def _marked(text: str, search: str) -> str:
    if not search:
        return escape(text)
    # Escaped piece by piece: a search in escaped text would also match inside entities such as `&amp;`.
    pieces = re.split(f"({re.escape(search)})", text, flags=re.IGNORECASE)
    return "".join(f"<mark>{escape(piece)}</mark>" if at % 2 else escape(piece) for at, piece in enumerate(pieces))
