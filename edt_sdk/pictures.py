"""Small pictures as SVG text: pure functions from numbers, used by the card and the monitor.

Shown as `<img>` with a data URI only, because notebooks strip inline `<svg>`. Colours are mid-tones on a transparent
ground, legible on white and on black; no picture says anything that the text beside it does not.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

ACCENT = "#4a8fd4"
QUIET = "#8a8a8a"


def progress_bar(done: float, slots: int, most: int, *, width: int = 240) -> str:
    """A bar of progress (`done` from 0 to 1), and under it `most` little boxes of which `slots` are filled."""
    done = min(1.0, max(0.0, done))
    parts = [
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="9" rx="3" fill="none" stroke="{QUIET}"/>',
        f'<rect x="0.5" y="0.5" width="{done * (width - 1):.1f}" height="9" rx="3" fill="{ACCENT}"/>',
    ]
    shown = min(most, 32)
    step = min(16.0, width / max(1, shown))
    for at in range(shown):
        fill = ACCENT if at < slots else "none"
        parts.append(
            f'<rect x="{at * step + 0.5:.1f}" y="14.5" width="{step - 3:.1f}" height="7" rx="2" '
            f'fill="{fill}" stroke="{QUIET}"/>'
        )
    return _svg(width, 24, parts)


def curve(points: Sequence[tuple[float, float]], *, width: int = 240, height: int = 48) -> str:
    """A line through (x, y) points, scaled to fit; "" for fewer than two."""
    known = [(x, y) for x, y in points if x == x and y == y and abs(y) != float("inf")]
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
    return _svg(width, height, parts)


def image(svg: str, says: str) -> str:
    """An `<img>` of `svg`; `says` is the sentence a person would say. "" for ""."""
    if not svg:
        return ""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(says, quote=True)}"/>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        + "".join(parts)
        + "</svg>"
    )
