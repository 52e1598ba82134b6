"""Draws the README's picture from the demo's own event list: `make demo`, then `.venv/bin/python demo/picture.py`.

Time runs to the right, slots upwards, one colour per job; a hatched part is a slot that a job was asked to give back
and has not left yet. The file stands alone and follows the reader's light or dark theme.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / ".demo" / "timeline.json"
TARGET = REPOSITORY / "docs" / "images" / "allocation.svg"

WIDTH, SLOT, LEFT, RIGHT, TOP, BOTTOM = 860, 44, 64, 20, 46, 40
COLOURS = ("#3b7dd8", "#c8741a", "#4c9f70", "#a05fb4")
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .on { fill: #fff; font-weight: 600 }
  .small { font-size: 11px; fill: #57606a }
  rect { shape-rendering: crispEdges }
  .line { stroke: #57606a; stroke-width: 1 }
  .dash { stroke: #57606a; stroke-width: 1; stroke-dasharray: 3 4; opacity: .6 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .on { fill: #fff } .small { fill: #9da7b3 } .line, .dash { stroke: #9da7b3 }
  }"""


def draw(timeline: dict) -> str:
    """The SVG of `{"rows", "names", "capacity", "notes": [[seconds since the epoch, text], …]}`."""
    rows, names, capacity = timeline["rows"], timeline["names"], timeline["capacity"]
    begin, end = rows[0]["time"], rows[-1]["time"]
    wide, high = WIDTH - LEFT - RIGHT, SLOT * capacity
    jobs = list(dict.fromkeys(job for row in rows for job in row["slots"]))

    def x(time: float) -> float:
        return round(LEFT + wide * (time - begin) / (end - begin), 1)

    def y(slots: int) -> float:
        return TOP + high - SLOT * slots

    parts = []
    for row, after in pairwise(rows):
        below = 0
        for job, colour in zip(jobs, COLOURS, strict=False):
            held, leaving = row["slots"].get(job, 0), row["leaving"].get(job, 0)
            for at in range(held):
                start, stop = x(row["time"]), x(after["time"])
                box = f'x="{start}" y="{y(below + 1)}" width="{stop - start:.1f}" height="{SLOT}"'
                parts.append(f'<rect {box} fill="{colour}"/>')
                if at >= held - leaving:
                    parts.append(f'<rect {box} fill="url(#leaving)"/>')
                below += 1
    for slots in range(capacity + 1):
        parts.append(f'<line class="dash" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(slots)}" y2="{y(slots)}"/>')
        parts.append(f'<text class="small" x="{LEFT - 10}" y="{y(slots) + 4}" text-anchor="end">{slots}</text>')
    for seconds in range(0, int(end - begin) + 1, _step(end - begin)):
        place = x(begin + seconds)
        parts.append(f'<line class="line" x1="{place}" x2="{place}" y1="{TOP + high}" y2="{TOP + high + 5}"/>')
        parts.append(f'<text class="small" x="{place}" y="{TOP + high + 19}" text-anchor="middle">{seconds} s</text>')
    parts += _labels(rows, jobs, names, x, y)
    for time, note in timeline["notes"]:
        parts.append(f'<line class="line" x1="{x(time)}" x2="{x(time)}" y1="{TOP - 10}" y2="{TOP + high}"/>')
        parts.append(f'<text class="small" x="{x(time) + 4}" y="{TOP - 14}">{escape(note)}</text>')
    parts.append(f'<text class="small" x="{LEFT - 10}" y="{TOP - 14}" text-anchor="end">slots</text>')
    says = "Slots held over time: the first job four, then two and two, then one and three, then the second job four."
    hatch = (
        '<pattern id="leaving" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="3" height="6" fill="#fff" opacity=".45"/></pattern>'
    )
    total = TOP + high + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" role="img" aria-label="{says}">\n'
        f"<style>{STYLE}\n</style>\n<defs>{hatch}</defs>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _labels(rows, jobs, names, x, y) -> list[str]:
    """How many slots each job holds, with its name where there is room for it."""
    parts = []
    for row, after in pairwise(rows):
        wide = x(after["time"]) - x(row["time"])
        if not row["settled"] or wide < 16:
            continue
        below = 0
        for job in jobs:
            if held := row["slots"].get(job, 0):
                middle = (x(row["time"]) + x(after["time"])) / 2
                text = f"{names.get(job, job)}: {held}" if wide >= 96 else str(held)
                parts.append(
                    f'<text class="on" x="{middle:.1f}" y="{y(below) - SLOT * held / 2 + 5:.1f}"'
                    f' text-anchor="middle">{escape(text)}</text>'
                )
            below += held
    return parts


def _step(seconds: float) -> int:
    return next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 3600) if seconds / step <= 12)


def main() -> int:
    if not SOURCE.exists():
        print("Run `make demo` first: the picture is drawn from what it did.", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(draw(json.loads(SOURCE.read_text())), encoding="utf-8")
    print(TARGET.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
