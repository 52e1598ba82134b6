"""The few pieces of HTML that all tabs are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from edt_sdk.card import GREY
from edt_sdk.schemas.errors import EdtError

BAD = "#d1495b"
# Where styles are stripped, a table is still a table.
_TABLE = 'style="line-height: 1.5"'
_CELL = 'style="text-align: left; vertical-align: top; padding: 0 14px 0 0"'


def note(text: str) -> str:
    """A sentence that matters less."""
    return f'<span style="color: {GREY}">{escape(text)}</span>' if text else ""


def refused(error: EdtError) -> str:
    """What went wrong and what to do, as a person reads it; icon and words as well as colour."""
    hint = f" {escape(error.hint)}" if error.hint else ""
    return f'<span style="color: {BAD}"><b>✘</b></span> {escape(error.message)}{hint}'


def done(text: str) -> str:
    """What was done."""
    return f"✔ {escape(text)}" if text else ""


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values; rows without a value are left out."""
    cells = "".join(
        f"<tr><td {_CELL}>{note(name)}</td><td {_CELL}>{escape(value)}</td></tr>" for name, value in rows if value
    )
    return f"<table {_TABLE}>{cells}</table>" if cells else ""


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> str:
    """A table, or the sentence for none."""
    if not rows:
        return f"<p>{escape(empty)}</p>"
    names = "".join(f"<th {_CELL}>{escape(name)}</th>" for name in head)
    cells = "".join("<tr>" + "".join(f"<td {_CELL}>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table {_TABLE}><tr>{names}</tr>{cells}</table>"


def size(count: float) -> str:
    """Bytes as people say them: "1.2 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def lasting(seconds: float) -> str:
    """A duration as people say it: "41 s", "3 min 20 s", "2 h 05 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
