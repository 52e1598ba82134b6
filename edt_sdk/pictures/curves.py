"""The common parts of loss pictures: points, lines with gaps at missing values, smoothing, the frame."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.extremes import fewest
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import num, tag
from edt_sdk.pictures.parts.scales import Frame, bounded, time_axis

AXES = ("samples", "updates", "time")
MOST_POINTS = 400
LEFT = 56
_LEAST = 1e-150  # the smallest value on a logarithmic axis
_OUTERMOST = 6


@dataclass(frozen=True, slots=True)
class Loss:
    """One point of a curve: its x, and the loss, which may be NaN."""

    x: float
    loss: float

    @property
    def known(self) -> bool:
        """True when the loss is a number."""
        return math.isfinite(self.loss)


def drawable(points: Sequence[Loss], most: int = MOST_POINTS) -> list[Loss]:
    """Return at most `most` points with a finite x: the extremes of each interval, and both ends."""
    placed = [
        Loss(bounded(point.x), bounded(point.loss) if point.known else math.nan)
        for point in points
        if math.isfinite(point.x)
    ]
    # Not a number counts as the smallest value of all, so that thinning keeps it and its cross is drawn.
    return list(fewest(placed, most, lambda point: point.loss if point.known else -math.inf))


def smoothed(points: Sequence[Loss], smooth: float) -> list[Loss]:
    """Return the moving mean of the points, from 0 (no line) to 1 (over a third of all points).

    Near an end the window shrinks to as many points before as after, so that the line starts and ends where the points
    do. A one-sided mean at the start would lie below the points while the loss falls. For the outermost few points the
    value of a straight line through them is used.
    """
    known = [point for point in points if point.known]
    half = round(min(1.0, max(0.0, smooth)) * len(known) / 6)
    if half < 1:
        return []
    found = []
    for at, point in enumerate(known):
        reach = max(min(half, at, len(known) - 1 - at), min(half, _OUTERMOST))
        first = max(0, at - reach)
        found.append(Loss(point.x, _through([each.loss for each in known[first : at + reach + 1]], at - first)))
    return found


def _through(values: Sequence[float], at: int) -> float:
    """Return the value at position `at` of the straight line fitted to these values."""
    count = len(values)
    mean, middle = sum(value / count for value in values), (count - 1) / 2
    if at == middle:
        return mean
    # The squares of the places around their mean sum up to (count³ - count) / 12.
    slope = sum((place - middle) * (value - mean) for place, value in enumerate(values)) * 12 / (count**3 - count)
    return mean + slope * (at - middle)


def loss_frame(points: Sequence[Loss], top: float, bottom: float, right: float, *, log: bool = False) -> Frame:
    """Return the frame of these points, with a little room above and, unless they are near 0, below.

    With `log` the y axis is logarithmic, unless no loss is above 0. Losses of 0 and below lie at its lower end.
    """
    xs = [point.x for point in points]
    ys = [point.loss for point in points if point.known] or [0.0, 1.0]
    low, high = min(ys), max(ys)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    # A loss is nearly always above 0, and an axis that goes below 0 would suggest otherwise.
    floor = 0.0 if 0 <= low <= 0.4 * high else low - room
    first = min(xs)
    # An axis of no length would divide by zero. A relative minimum is visible also beside seconds since the epoch.
    last = max(*xs, first + max(1e-9, abs(first) * 1e-9))
    above = [y for y in ys if y > _LEAST] if log else []
    if above:
        return Frame(LEFT, top, right, bottom, first, last, min(above) / 1.2, max(above) * 1.2, log=True)
    return Frame(LEFT, top, right, bottom, first, last, floor, high + room)


def lines(
    points: Sequence[Loss],
    frame: Frame,
    colour: str,
    wide: float,
    *,
    opacity: str | None = None,
    dash: str | None = None,
) -> Iterator[str]:
    """Draw a line for each run of numbers. A missing value breaks the line."""
    runs: list[list[str]] = [[]]
    for point in points:
        if point.known:
            runs[-1].append(f"{num(frame.x(point.x))},{num(frame.y(point.loss))}")
        elif runs[-1]:
            runs.append([])
    for run in runs:
        if len(run) > 1:
            yield tag(
                "polyline",
                points=" ".join(run),
                fill="none",
                stroke=colour,
                stroke_width=wide,
                stroke_dasharray=dash,
                stroke_linejoin="round",
                opacity=opacity,
            )


def dots(points: Sequence[Loss], frame: Frame, colour: str, wide: float, *, opacity: str | None = None) -> str:
    """Draw a dot for each number, all in one path."""
    # A stroke of length 0 with round ends is a dot. One path is far smaller than hundreds of circles.
    path = "".join(f"M{num(frame.x(p.x))} {num(frame.y(p.loss))}h0" for p in points if p.known)
    if not path:
        return ""
    return tag("path", d=path, stroke=colour, stroke_width=wide, stroke_linecap="round", opacity=opacity)


def loss_grid(frame: Frame, look: Look) -> list[str]:
    """Draw grid lines with their losses."""
    if frame.log:
        return scales.y_axis(frame, look, [(y, f"{y:g}") for y in scales.log_ticks(frame.y0, frame.y1)])
    return scales.y_axis(frame, look, scales.numbers(scales.ticks(frame.y0, frame.y1)))


def loss_axis(kind: str, frame: Frame, look: Look, *, clock: bool = True) -> list[str]:
    """Draw the x axis for an entry of `AXES`. Without `clock` time counts from a start."""
    if kind == "time":
        return time_axis(frame, look, clock=clock)
    about = max(4, int((frame.right - frame.left) // 70))
    values = scales.ticks(frame.x0, frame.x1, about)
    return scales.x_axis(frame, look, scales.numbers(values), kind)
