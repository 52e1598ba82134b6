"""Represent a job's log in a notebook: a string of its lines that displays its end.

A line may have a megabyte, there may be a million lines, and they may hold any program output. So escape sequences are
removed, a progress bar is reduced to its last state, and a long line is cut with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

import msgspec

from edt_sdk.formatting.number_words import clock, zone
from edt_sdk.formatting.tables import BAD, GREY, left_out, note

LONGEST = 2000
_SHOWN = 300
_REPR_LINES = 1000
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a line of a job's log. str() gives the text for a terminal.

    Attributes:
        time: seconds since the epoch.
        stream: "stdout" or "stderr" of the driver, "elog", or "worker".
        worker: the worker's number, None for the driver.
        err: True for stderr.
    """

    time: float
    stream: str
    worker: int | None = None
    err: bool = False
    text: str

    def __str__(self) -> str:
        return self.text if self.worker is None else f"worker {self.worker} | {self.text}"


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
        text = "\n".join(_cut(str(line)) for line in self.lines[-_REPR_LINES:])
        if rest := left_out(len(self.lines), _REPR_LINES):
            text = f"({rest} print() shows every line.)\n{text}"
        return text.rstrip("\n") or "(the log is empty)"

    def _repr_html_(self) -> str:
        count = len(self.lines)
        said = f"{count:,} line{'' if count == 1 else 's'}"
        if count > _SHOWN:
            said += f", of which the newest {_SHOWN} are shown"
        said += f". Times are {zone()}; ✘ marks what went to stderr."
        return log_html(self.lines[-_SHOWN:]) + note(said if count else "Nothing has been written yet.")


def log_html(lines: Sequence[LogLine]) -> str:
    """Return lines with time and origin. Errors have a mark as well as a colour."""
    rows = "".join(map(_row, lines))
    return f'<pre style="margin: 0; white-space: pre-wrap; overflow-wrap: anywhere">{rows}</pre>'


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


def _row(line: LogLine) -> str:
    who = "driver" if line.worker is None else f"worker {line.worker}"
    mark = f'<span style="color: {BAD}">✘</span>' if line.err else " "
    return f'<span style="color: {GREY}">{clock(line.time)} {who:<9}</span> {mark} {escape(plain(line.text))}\n'


def _cut(line: str) -> str:
    if len(line) <= LONGEST:
        return line
    return f"{line[:LONGEST]} … (cut; the line has {len(line):,} characters, print() shows them)"
