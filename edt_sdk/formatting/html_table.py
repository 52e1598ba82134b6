"""A table as HTML: readable in every front end, and still a table where styles are stripped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

GREY = "#8a8a8a"
BAD = "#d1495b"
_TABLE = 'style="line-height: 1.5"'
_CELL = 'style="text-align: left; vertical-align: top; padding: 0 14px 0 0"'


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> str:
    """A table, or the sentence for none."""
    if not rows:
        return f"<p>{escape(empty)}</p>"
    names = "".join(f"<th {_CELL}>{escape(name)}</th>" for name in head)
    cells = "".join("<tr>" + "".join(f"<td {_CELL}>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table {_TABLE}><tr>{names}</tr>{cells}</table>"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and values; rows without a value are left out."""
    cells = "".join(
        f"<tr><td {_CELL}>{note(name)}</td><td {_CELL}>{escape(value)}</td></tr>" for name, value in rows if value
    )
    return f"<table {_TABLE}>{cells}</table>" if cells else ""


def note(text: str) -> str:
    """A sentence that matters less."""
    return f'<span style="color: {GREY}">{escape(text)}</span>' if text else ""


def left_out(there: int, shown: int) -> str:
    """What is said below a list of which only a part is shown; "" for all of it."""
    return f"… and {there - shown:,} more of {there:,}, which are not shown here." if there > shown else ""
