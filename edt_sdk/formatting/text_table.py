"""Format a table as text, with columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return left-aligned columns. The last column is not padded."""
    cells = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    return "\n".join("  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)
