"""Draw figures as characters: a curve of Braille dots between axes with round values, rows of blocks, a bar. Pure.

Colour carries no information, so that they can be read in any terminal, in a log and in an e-mail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from edt_sdk.pictures.parts.scales import NARROWEST, bounded, number, ticks

Points = Sequence[tuple[float, float | None]]
SPOT, NO_NUMBER = "●", "✕"
_BLOCKS = " ▁▂▃▄▅▆▇█"
_PARTS = " ▏▎▍▌▋▊▉█"
_BRAILLE = 0x2800
# The bit of each dot in a Braille character: two columns of four rows.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# Larger numbers could overflow in products and differences of two.
_MOST = 1e150


def chart(curve: Points, spots: Points, *, width: int, height: int, x_name: str) -> list[str]:
    """Draw a curve and single spots over a common x axis.

    Args:
        curve: (x, y) joined by a line, by x. A y that is no number (None, NaN, infinite) is a ✕ at the upper edge.
        spots: (x, y), each drawn as ●.
        width: columns of the whole, axis included, at least 20.
        height: rows of the plot, without the axis below it.
        x_name: name of the x axis.

    Returns:
        `height` + 2 lines, or [] when there is nothing to draw.
    """
    known = [(x, y) for x, y in (*curve, *spots) if _is_number(y)]
    if not known:
        return []
    low, high = min(y for _, y in known), max(y for _, y in known)
    # A constant curve lies in the middle of an axis around its value.
    if high - low < NARROWEST:
        room = max(abs(low), abs(high)) / 2
        room = room if room > NARROWEST else 0.5
        low, high = low - room, high + room
    first, last = min(x for x, _ in (*curve, *spots)), max(x for x, _ in (*curve, *spots))
    names = {round((1 - (value - low) / (high - low)) * (height - 1)): number(value) for value in ticks(low, high, 4)}
    left = max(map(len, names.values()), default=1)
    columns = max(8, width - left - 2)

    def column(x: float) -> int:
        return min(columns - 1, int((x - first) / ((last - first) or 1.0) * columns))

    cells = _drawn(curve, first, last, low, high, columns, height)
    for x, y in curve:
        if not _is_number(y):
            cells[0][column(x)] = NO_NUMBER
    for x, y in spots:
        if _is_number(y):
            cells[round((1 - (y - low) / (high - low)) * (height - 1))][column(x)] = SPOT
    lines = []
    for row, cell in enumerate(cells):
        name = names.get(row, "")
        lines.append(f"{name:>{left}} {'┤' if name else '│'}{''.join(cell)}".rstrip())
    return [*lines, *_x_axis(first, last, left, columns, column, x_name)]


def _drawn(
    curve: Points, first: float, last: float, low: float, high: float, columns: int, height: int
) -> list[list[str]]:
    """Draw the line in Braille characters: in each column of dots from its lowest to its highest value."""
    dots = [[0] * columns for _ in range(height)]
    before: tuple[int, int] | None = None
    for x, y in curve:
        if not _is_number(y):
            before = None
            continue
        across = min(2 * columns - 1, int((x - first) / ((last - first) or 1.0) * 2 * columns))
        down = min(4 * height - 1, round((1 - (y - low) / (high - low)) * (4 * height - 1)))
        for at, row in _line(before or (across, down), (across, down)):
            dots[row // 4][at // 2] |= _DOTS[at % 2][row % 4]
        before = (across, down)
    return [[chr(_BRAILLE + dot) if dot else " " for dot in row] for row in dots]


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (round(start[0] + (end[0] - start[0]) * at / steps), round(start[1] + (end[1] - start[1]) * at / steps))
        for at in range(steps + 1)
    ]


def _x_axis(
    first: float, last: float, left: int, columns: int, column: Callable[[float], int], x_name: str
) -> list[str]:
    edge, names = ["─"] * columns, [" "] * columns
    taken = -1
    room = columns - len(x_name) - 1
    for value in ticks(first, last, max(2, columns // 14)) if last > first else [first]:
        at, name = column(value), number(value)
        begins = min(max(0, at - len(name) // 2), columns - len(name))
        edge[at] = "┬"
        # A name that would overlap with another one, or with the name of the axis, is left out.
        if begins > taken and begins + len(name) <= room:
            names[begins : begins + len(name)] = name
            taken = begins + len(name)
    names[columns - len(x_name) :] = x_name
    return [f"{'':>{left}} └{''.join(edge)}", f"{'':>{left}}  {''.join(names)}".rstrip()]


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and abs(value) < _MOST


def blocks(values: Sequence[float | None], low: float, high: float) -> str:
    """Return one character per value, ▁ for `low` to █ for `high`, and "·" for None or a value that is not finite."""
    low, high = bounded(low), bounded(high)
    height = high - low

    def block(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return "·"
        share = min(1.0, max(0.0, (bounded(value) - low) / height)) if height > 0 else 0.5
        return _BLOCKS[1 + min(7, int(share * 8))]

    return "".join(map(block, values))


def levels(shares: Sequence[float]) -> str:
    """Return one character per share of a whole (0 … 1): " " for nothing, ▁ for a little, █ for all."""
    # Rounding errors must not turn an exact eighth into the next block.
    return "".join(_BLOCKS[math.ceil(min(1.0, max(0.0, share)) * 8 - 1e-9)] for share in shares)


def bar(share: float, width: int) -> str:
    """Return a bar of `width` columns, filled to this share (0 … 1) with a precision of 1/8 column."""
    whole, part = divmod(round(min(1.0, max(0.0, share)) * width * 8), 8)
    return (_PARTS[8] * whole + (_PARTS[part] if part else "")).ljust(width)


def over_time(
    rows: Sequence[tuple[float, Mapping[str, float]]], until: float, columns: int
) -> dict[str, tuple[float, ...]]:
    """Return each key's average in each of `columns` equal intervals.

    Args:
        rows: (time in seconds, key → value from then on), by time. A missing key has the value 0.
        until: end of the last row.
        columns: number of intervals from the first row's time to `until`.
    """
    if not rows:
        return {}
    start = rows[0][0]
    wide = max(until - start, 1e-6) / columns
    sums: dict[str, list[float]] = {key: [0.0] * columns for _, held in rows for key in held}
    ends = [time for time, _ in rows[1:]] + [until]
    for (time, held), end in zip(rows, ends, strict=True):
        first, behind = max(0.0, (time - start) / wide), min(float(columns), (end - start) / wide)
        for at in range(int(first), min(columns, math.ceil(behind))):
            # An interval counts each row for the time in which both overlap.
            share = min(at + 1.0, behind) - max(float(at), first)
            for key, value in held.items():
                sums[key][at] += value * max(0.0, share)
    return {key: tuple(values) for key, values in sums.items()}
