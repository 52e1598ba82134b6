"""The picture of a card: a progress bar above one small box a slot."""

from __future__ import annotations

from edt_sdk.pictures.parts.look import ACCENT, QUIET

_MOST_BOXES = 32


def progress_bar(done: float, slots: int, most: int, *, width: int = 240) -> str:
    """Draw a progress bar (`done` from 0 to 1), and below it `most` small boxes of which `slots` are filled."""
    done = min(1.0, max(0.0, done)) if done == done else 0.0
    parts = [
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="9" rx="3" fill="none" stroke="{QUIET}"/>',
        f'<rect x="0.5" y="0.5" width="{done * (width - 1):.1f}" height="9" rx="3" fill="{ACCENT}"/>',
    ]
    shown = min(most, _MOST_BOXES)
    step = min(16.0, width / max(1, shown))
    for at in range(shown):
        fill = ACCENT if at < slots else "none"
        parts.append(
            f'<rect x="{at * step + 0.5:.1f}" y="14.5" width="{step - 3:.1f}" height="7" rx="2" '
            f'fill="{fill}" stroke="{QUIET}"/>'
        )
    return bare(width, 24, parts)


def bare(width: int, height: int, parts: list[str]) -> str:
    """Return an SVG document of a fixed size. The `<img>` around it has the text for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        + "".join(parts)
        + "</svg>"
    )
