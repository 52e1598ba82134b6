"""Format tables: as text with columns as wide as their widest cell, and as HTML that every front end can show."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from edt_sdk.formatting.control_characters import one_line

GREY = "#8a8a8a"
BAD = "#d1495b"
_LEAST_LAST = 24
# Deeper than the ids of `edt top` and `edt cluster`, which have the column of letters before them.
_INDENT = 5 * " "
# Where these styles are stripped, the table remains readable.
_CELL = 'style="text-align: left; vertical-align: top; padding: 0 14px 0 0"'


def text_table(
    head: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None, dropped: Sequence[str] = ()
) -> str:
    """Return left-aligned columns. The last column is not padded.

    With a `width` the columns that `dropped` names are left out, in that order, until the table fits, and lines that
    are still longer are cut. The last column may be cut to a part before another one is left out.
    """
    cells = [[one_line(str(cell)) for cell in row] for row in (head, *rows)]
    going = [name for name in dropped if name in head]
    while True:
        widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
        least = sum(widths[:-1]) + 2 * (len(widths) - 1) + min(widths[-1], _LEAST_LAST)
        if width is None or least <= width or not going:
            break
        at = cells[0].index(going.pop(0))
        cells = [[*row[:at], *row[at + 1 :]] for row in cells]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join(line if width is None or len(line) <= width else f"{line[: width - 1]}…" for line in lines)


def with_sentences(table: str, sentences: Sequence[str], width: int) -> str:
    """Return a text table with a sentence below each row, wrapped at `width` columns and indented. "" adds no line."""
    head, *rows = table.split("\n")
    lines = [head]
    for row, sentence in zip(rows, sentences, strict=True):
        lines += [row, *textwrap.wrap(sentence, width, initial_indent=_INDENT, subsequent_indent=_INDENT)]
    return "\n".join(lines)


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
