"""Format tables: as text with columns as wide as their widest cell, and as HTML that every front end can show."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

GREY = "#8a8a8a"
BAD = "#d1495b"
# Where these styles are stripped, the table remains readable.
_CELL = 'style="text-align: left; vertical-align: top; padding: 0 14px 0 0"'


def text_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return left-aligned columns. The last column is not padded."""
    cells = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    return "\n".join("  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)


def html_table(head: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "") -> str:
    """Return a table with capitalized column heads, or for no rows the sentence `empty`."""
    if not rows:
        return f"<p>{escape(empty)}</p>" if empty else ""
    names = "".join(f'<th scope="col" {_CELL}>{escape(name.capitalize())}</th>' for name in head)
    cells = "".join("<tr>" + "".join(f"<td {_CELL}>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table style="line-height: 1.5"><tr>{names}</tr>{cells}</table>'


def note(text: str) -> str:
    """Return a less important sentence in grey."""
    return f'<span style="color: {GREY}">{escape(text)}</span>' if text else ""


def left_out(there: int, shown: int) -> str:
    """Return the sentence below a list that shows only a part, "" for a complete list."""
    return f"… and {there - shown:,} more of {there:,}, which are not shown here." if there > shown else ""
