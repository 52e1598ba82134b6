"""Represent a job's log in a notebook: a string of its lines that displays its end."""

from __future__ import annotations

from collections.abc import Iterable

from edt_sdk.display.log_line import LogLine
from edt_sdk.formatting.html_table import left_out

_REPR_LINES = 1000
_REPR_WIDTH = 2000


class LogText(str):
    """Holds a log as one string. `lines` has the lines with their times and origins."""

    __slots__ = ("lines",)
    lines: tuple[LogLine, ...]

    def __new__(cls, lines: Iterable[LogLine]) -> LogText:
        """Create the text of `lines`, each ended by a line break."""
        kept = tuple(lines)
        text = super().__new__(cls, "".join(f"{line}\n" for line in kept))
        text.lines = kept
        return text

    def __repr__(self) -> str:
        """Return the end of the log. `print` and the string itself have every character."""
        shown = [str(line) for line in self.lines[-_REPR_LINES:]]
        text = "\n".join(map(_cut, shown))
        if rest := left_out(len(self.lines), _REPR_LINES):
            text = f"({rest} print() shows every line.)\n{text}"
        return text.rstrip("\n") or "(the log is empty)"

    def _repr_html_(self) -> str:
        from edt_sdk.display.log_lines import LogLines, log_html, log_words

        log = LogLines()
        log.add(self.lines)
        found = log.matching("")
        return log_html(found) + log_words(log, len(found), "")


def _cut(line: str) -> str:
    """Return the line, or its start and its length."""
    if len(line) <= _REPR_WIDTH:
        return line
    return f"{line[:_REPR_WIDTH]} … (cut; the line has {len(line):,} characters, print() shows them)"
