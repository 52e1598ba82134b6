"""Draw shares as characters: a row of blocks over time, and a bar. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edt_sdk.pictures.parts.scales import bounded

_BLOCKS = " ▁▂▃▄▅▆▇█"
_PARTS = " ▏▎▍▌▋▊▉█"


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
