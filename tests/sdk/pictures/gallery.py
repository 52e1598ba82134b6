"""All pictures on one page, on white and on black, to be looked at: `tests/sdk/pictures/gallery.py PAGE.html [WIDTH]`.

The golden tests tell that something changed; only eyes tell whether it is better.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import image
from tests.sdk.pictures.samples import PICTURES

GROUNDS = (("auto", "#fff"), ("auto", "#111"), ("light", "#fff"), ("dark", "#111"))


def page(width: int) -> str:
    cells = []
    for theme, ground in GROUNDS:
        drawn = (draw(Look(theme, 260 if name == "spark" else width)) for name, draw in PICTURES.items())
        images = "".join(f"<p>{image(svg, '')}</p>" for svg in drawn)
        cells.append(f'<td style="background: {ground}; padding: 12px; vertical-align: top">{images}</td>')
    return f"<!doctype html><meta charset=utf-8><table><tr>{''.join(cells)}</tr></table>\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(int(sys.argv[2]) if len(sys.argv) > 2 else 720), encoding="utf-8")
