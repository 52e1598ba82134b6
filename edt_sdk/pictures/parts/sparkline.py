"""A line chart without axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edt_sdk.pictures.parts.boxes import bare
from edt_sdk.pictures.parts.look import ACCENT, QUIET
from edt_sdk.pictures.parts.scales import bounded


def curve(points: Sequence[tuple[float, float]], *, width: int = 240, height: int = 48) -> str:
    """Draw a line through (x, y) points, scaled to fit. Returns "" for fewer than two points."""
    known = [(bounded(x), bounded(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(known) < 2:
        return ""
    xs, ys = [x for x, _ in known], [y for _, y in known]
    left, wide = min(xs), (max(xs) - min(xs)) or 1.0
    low, tall = min(ys), (max(ys) - min(ys)) or 1.0
    path = " ".join(
        f"{2 + (x - left) / wide * (width - 4):.1f},{2 + (1 - (y - low) / tall) * (height - 4):.1f}" for x, y in known
    )
    parts = [
        f'<line x1="0" y1="{height - 0.5}" x2="{width}" y2="{height - 0.5}" stroke="{QUIET}"/>',
        f'<polyline points="{path}" fill="none" stroke="{ACCENT}" stroke-width="1.5"/>',
    ]
    return bare(width, height, parts)
