"""Draws the README's picture from the demo's own event list: `make demo`, then `.venv/bin/python demo/picture.py`.

The same functions draw the pictures of a notebook and of the Lab panel; here the clock begins with the first job.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from edt_sdk.pictures.allocation import AllocationChart, draw_allocation
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.marks import Mark
from edt_server.history.picture_data import allocation_of

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / ".demo" / "timeline.json"
TARGET = REPOSITORY / "docs" / "images" / "allocation.svg"
WIDTH = 860


def held_in(timeline: dict[str, Any]) -> AllocationChart:
    """The allocation of `{"rows", "names", "capacity", "notes": [[seconds since the epoch, text], …]}`."""
    rows = timeline["rows"]
    held = allocation_of(rows, timeline["names"], until=rows[-1]["time"])
    begin = held.edges[0]
    # By their names, so that the colours are the same whenever the demo is run.
    return replace(
        held,
        edges=tuple(edge - begin for edge in held.edges),
        bands=tuple(replace(band, job=band.name) for band in held.bands),
        marks=tuple(Mark(max(0.0, time - begin), "note", text) for time, text in timeline["notes"]),
        clock=False,
    )


def main() -> int:
    if not SOURCE.exists():
        print("Run `make demo` first: the picture is drawn from what it did.", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    drawn = draw_allocation(held_in(json.loads(SOURCE.read_text())), Look(width=WIDTH))
    TARGET.write_text(f"{drawn}\n", encoding="utf-8")
    print(TARGET.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
