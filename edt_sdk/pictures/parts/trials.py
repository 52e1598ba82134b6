"""Trials of a search as dots. Each fate has its own shape: filled, half filled or hollow, beside its colour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import quantiles

from edt_sdk.pictures.parts.look import Ink
from edt_sdk.pictures.parts.paper import moved, tag, told
from edt_sdk.pictures.parts.scales import bounded

MOST_DOTS = 2000
MOST_TOLD = 400
_FAR = 3.0  # times the middle half of all values; what lies beyond is drawn at the edge
# What became of a trial, with the words of the legend. What must not be overlooked is drawn last, over the others.
FATES = {
    "pruned": "ended early",
    "failed": "failed",
    "held": "held",
    "running": "runs",
    "finished": "finished",
    "promoted": "went on",
}


@dataclass(frozen=True, slots=True)
class TrialDot:
    """A trial with its value.

    Attributes:
        at: its number, or when it ended in seconds since the epoch.
        value: the metric, NaN or infinite values included.
        fate: one of `FATES`.
        rank: epochs after which it was compared last, since values after different numbers of epochs are not compared.
        text: the trial, its value and its parameters, for the tooltip.
    """

    at: float
    value: float
    fate: str
    rank: int = 0
    text: str = ""


def drawable(dots: Iterable[TrialDot]) -> list[TrialDot]:
    """Return the dots that have a place, in a range in which differences do not overflow."""
    return [
        replace(dot, at=bounded(dot.at), value=bounded(dot.value))
        for dot in dots
        if math.isfinite(dot.at) and math.isfinite(dot.value)
    ]


def reach(dots: Sequence[TrialDot]) -> tuple[float, float]:
    """Return the ends of an axis of values. A few values far away from all others do not stretch it."""
    values = sorted(dot.value for dot in dots)
    low, high = values[0], values[-1]
    if len(values) > 4:
        first, _, third = quantiles(values, n=4)
        far = _FAR * (third - first)
        if far > 0:
            low, high = max(low, first - far), min(high, third + far)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - room, high + room


def glyph(fate: str, ink: Ink) -> str:
    """Return the shape of a fate around 0, 0, about 8 pixels wide."""
    match fate:
        case "promoted":
            return tag("path", d="M-4.5 3.5L0 -4.5L4.5 3.5Z", fill=ink.good)
        case "held":
            return tag("path", d="M-3.5 -3.5H3.5V3.5H-3.5Z", fill=ink.warn, fill_opacity="0.4", stroke=ink.warn)
        case "running":
            return tag("path", d="M-3 -4L4 0L-3 4Z", fill="none", stroke=ink.train, stroke_width=1.6)
        case "pruned":
            return tag("circle", r=3.2, fill="none", stroke=ink.soft, stroke_width=1.4)
        case "failed":
            return tag("path", d="M-3.5 -3.5L3.5 3.5M-3.5 3.5L3.5 -3.5", stroke=ink.bad, stroke_width=2, fill="none")
        case _:
            return tag("circle", r=3.6, fill=ink.train)


def entries(dots: Iterable[TrialDot], ink: Ink) -> list[tuple[str, str]]:
    """Return legend entries for the fates that occur."""
    present = {dot.fate for dot in dots}
    return [(glyph(fate, ink), name) for fate, name in FATES.items() if fate in present]


def drawn(placed: Sequence[tuple[TrialDot, float, float]], ink: Ink) -> list[str]:
    """Draw dots at their places, with tooltips where they are not too many."""
    order = list(FATES)
    shapes = {fate: glyph(fate, ink) for fate in FATES}
    parts = []
    for dot, x, y in sorted(placed, key=lambda each: order.index(each[0].fate)):
        shape = moved(shapes[dot.fate], x, y)
        parts.append(told(shape, dot.text) if len(placed) <= MOST_TOLD else shape)
    return parts
