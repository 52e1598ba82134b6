"""Format a table as HTML that every front end can show, also where styles are stripped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

GREY = "#8a8a8a"
BAD = "#d1495b"
_TABLE = 'style="line-height: 1.5"'
_CELL = 'style="text-align: left; vertical-align: top; padding: 0 14px 0 0"'


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> str:
    """Return a table, or the sentence `empty` for no rows."""
    if not rows:
        return f"<p>{escape(empty)}</p>"
    names = "".join(f"<th {_CELL}>{escape(name)}</th>" for name in head)
    cells = "".join("<tr>" + "".join(f"<td {_CELL}>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table {_TABLE}><tr>{names}</tr>{cells}</table>"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values, without rows that have no value."""
    cells = "".join(
        f"<tr><td {_CELL}>{note(name)}</td><td {_CELL}>{escape(value)}</td></tr>" for name, value in rows if value
    )
    return f"<table {_TABLE}>{cells}</table>" if cells else ""


def note(text: str) -> str:
    """Return a less important sentence in grey."""
    return f'<span style="color: {GREY}">{escape(text)}</span>' if text else ""


def left_out(there: int, shown: int) -> str:
    """Return the sentence below a list that shows only a part, "" for a complete list."""
    return f"… and {there - shown:,} more of {there:,}, which are not shown here." if there > shown else ""
