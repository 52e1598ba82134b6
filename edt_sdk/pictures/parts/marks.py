"""Draw marks: an event as a shape with a tooltip. Each kind has its own shape in addition to its colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edt_sdk.pictures.parts.look import Ink
from edt_sdk.pictures.parts.paper import moved, told

MOST_MARKS = 60
_APART = 7  # pixels
# The most important kind first, with the words that the legend uses.
KINDS = {
    "failure": "failure",
    "preempt": "taken away",
    "shrink": "fewer",
    "grow": "more",
    "checkpoint": "checkpoint",
    "note": "event",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at `at` on the x axis: its kind, one of `KINDS`, and what and why for the tooltip."""

    at: float
    kind: str
    text: str


def glyph(kind: str, ink: Ink) -> str:
    """Return the shape of a kind around 0, 0, about 9 pixels wide."""
    match kind:
        case "grow":
            return f'<path d="M-4.5 3.5L0 -4.5L4.5 3.5Z" fill="{ink.good}"/>'
        case "shrink":
            return f'<path d="M-4.5 -3.5L0 4.5L4.5 -3.5Z" fill="{ink.soft}"/>'
        case "preempt":
            return f'<path d="M-4.5 -3.5L0 4.5L4.5 -3.5Z" fill="none" stroke="{ink.warn}" stroke-width="2"/>'
        case "failure":
            return f'<path d="M-4 -4L4 4M-4 4L4 -4" stroke="{ink.bad}" stroke-width="2.5" fill="none"/>'
        case "checkpoint":
            return f'<circle r="3.5" fill="{ink.train}"/>'
        case _:
            return f'<path d="M0 -5V5" stroke="{ink.text}" stroke-width="2"/>'


def entries(marks: Sequence[Mark], ink: Ink, counted: str) -> list[tuple[str, str]]:
    """Return legend entries for the kinds that occur. `counted` names what grows or shrinks: slots, workers."""
    present = {mark.kind for mark in marks}
    names = {**KINDS, "grow": f"more {counted}", "shrink": f"fewer {counted}", "preempt": f"{counted} taken away"}
    return [(glyph(kind, ink), name) for kind, name in names.items() if kind in present]


def gathered(marks: Sequence[Mark], place: Callable[[float], float]) -> list[Mark]:
    """Return at most `MOST_MARKS` marks. Two of a kind are at least `_APART` pixels apart.

    The tooltip of a drawn mark lists the marks that are too near to be drawn, and counts them when there are many.
    """
    groups: list[tuple[Mark, list[str]]] = []
    last: dict[str, tuple[float, int]] = {}
    for mark in sorted(marks, key=lambda each: each.at):
        x = place(mark.at)
        before = last.get(mark.kind)
        # Measured from the drawn mark and not from the last one that joined it. A long chain of close marks would
        # otherwise become a single mark.
        if before is not None and x - before[0] < _APART:
            groups[before[1]][1].append(mark.text)
            continue
        last[mark.kind] = (x, len(groups))
        groups.append((mark, [mark.text]))
    order = list(KINDS)
    if len(groups) > MOST_MARKS:
        # The most important kinds survive, and of these the earliest.
        kept = sorted(range(len(groups)), key=lambda at: (order.index(groups[at][0].kind), at))[:MOST_MARKS]
        groups = [groups[at] for at in sorted(kept)]
    # What must not be overlooked is drawn last, over whatever lies beside it.
    found = [Mark(mark.at, mark.kind, _summary(texts)) for mark, texts in groups]
    return sorted(found, key=lambda mark: -order.index(mark.kind))


def _summary(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    shown = "; ".join(texts[:3])
    return f"{len(texts)} times: {shown}{' …' if len(texts) > 3 else ''}"


def drawn(mark: Mark, x: float, y: float, ink: Ink) -> str:
    """Return the mark at a place, with its tooltip."""
    return told(moved(glyph(mark.kind, ink), x, y), mark.text)
