"""The pictures of a card: a progress bar above one small box a slot, and a line without axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edt_sdk.pictures.parts.look import ACCENT, QUIET
from edt_sdk.pictures.parts.scales import bounded, share

_MOST_BOXES = 32


def progress_bar(done: float, slots: int, most: int, *, width: int = 240) -> str:
    """Draw a progress bar (`done` from 0 to 1), and below it `most` small boxes of which `slots` are filled."""
    parts = [
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="9" rx="3" fill="none" stroke="{QUIET}"/>',
        f'<rect x="0.5" y="0.5" width="{share(done) * (width - 1):.1f}" height="9" rx="3" fill="{ACCENT}"/>',
    ]
    shown = min(most, _MOST_BOXES)
    step = min(16.0, width / max(1, shown))
    for at in range(shown):
        fill = ACCENT if at < slots else "none"
        parts.append(
            f'<rect x="{at * step + 0.5:.1f}" y="14.5" width="{step - 3:.1f}" height="7" rx="2" '
            f'fill="{fill}" stroke="{QUIET}"/>'
        )
    return _document(width, 24, parts)


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
    return _document(width, height, parts)


def _document(width: int, height: int, parts: Sequence[str]) -> str:
    """Return an SVG document without a description. The `<img>` around it has the text for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"{''.join(parts)}</svg>"
    )
