"""The loss of a training: at each update, smoothed over that, in validations, and how many workers computed it.

Points stay visible under the smooth line. A loss that is no number is a cross at the upper edge, never a gap without
a word. Below the curve: marks of what happened, and a strip with the number of workers, over the same x axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edt_sdk.pictures import scales
from edt_sdk.pictures.allocation import time_axis
from edt_sdk.pictures.lettering import shortened, width_of
from edt_sdk.pictures.look import Look
from edt_sdk.pictures.marks import Mark, drawn, entries, gathered
from edt_sdk.pictures.paper import SMALL, document, legend, line, moved, notice, num, tag, told, words
from edt_sdk.pictures.scales import Frame, bounded

AXES = ("samples", "updates", "time")
MOST_POINTS = 400
_LEFT = 56
_STRIP = 26


@dataclass(frozen=True, slots=True)
class Loss:
    """One value of a curve: where on the x axis, and the loss, which may be no number."""

    x: float
    loss: float


@dataclass(frozen=True, slots=True)
class Losses:
    """What is drawn.

    Attributes:
        name: what people call the job.
        train: one point an update, oldest first, thinned by whoever made this.
        test: validations.
        workers: (x from which on, how many) at each change of their number.
        marks: what happened, at its x.
        axis: what x is: samples, updates, or time in seconds since the epoch.
        total: how many updates there were before thinning.
        empty: the sentence for a picture without any point.
    """

    name: str
    train: tuple[Loss, ...]
    test: tuple[Loss, ...] = ()
    workers: tuple[tuple[float, int], ...] = ()
    marks: tuple[Mark, ...] = ()
    axis: str = "samples"
    total: int = 0
    empty: str = "No update yet: the curve begins with the first one."

    def says(self) -> str:
        """The picture in one sentence."""
        numbers = [point.loss for point in self.train if math.isfinite(point.loss)]
        if not self.train:
            return f"{self.name}: {self.empty}"
        if not numbers:
            return f"{self.name}: the training loss is not a number."
        parts = [f"{self.name}: training loss from {numbers[0]:.4g} to {numbers[-1]:.4g}"]
        tests = [point.loss for point in self.test if math.isfinite(point.loss)]
        parts += [f"test loss {tests[-1]:.4g}"] if tests else []
        if self.workers:
            counts = sorted({count for _, count in self.workers})
            many = f"{counts[0]} to {counts[-1]} workers" if len(counts) > 1 else _workers(counts[0])
            parts.append(f"computed by {many}")
        lost = sum(1 for point in self.train if not math.isfinite(point.loss))
        parts += [f"{lost} of the points shown are not a number"] if lost else []
        return f"{', '.join(parts)}."


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def draw_losses(losses: Losses, look: Look | None = None, *, smooth: float = 0.0) -> str:
    """The picture, as an SVG document.

    Args:
        losses: the points.
        look: how it is to look.
        smooth: from 0, not at all, to 1, the mean over a third of the points around each; the points stay visible.
    """
    look = look or Look()
    ink = look.ink
    train = [point for point in losses.train if math.isfinite(point.x)][:MOST_POINTS]
    test = [point for point in losses.test if math.isfinite(point.x)][:MOST_POINTS]
    known = [point for point in [*train, *test] if math.isfinite(point.loss)]
    if len(train) + len(test) < 2:
        return notice(look, _few(losses, known))
    lines = smoothed(train, smooth) if smooth > 0 else []
    rows, high = legend(look, _LEFT, 4, _entries(losses, train, test, bool(lines), look))
    frame = _frame(train, test, known, high + 16, look)
    parts = scales.y_axis(frame, look, [(value, scales.number(value)) for value in scales.ticks(frame.y0, frame.y1)])
    parts.append(words(6, frame.top - 5, "loss", ink.soft))
    for mark in (marks := gathered(losses.marks, frame.x)):
        if mark.kind != "checkpoint":
            parts.append(line(frame.x(mark.at), frame.top, frame.x(mark.at), frame.bottom, ink.text, opacity="0.3"))
    parts += _curve(train, frame, ink.train, faint=bool(lines))
    parts += _polylines(lines, frame, ink.train, 2.2)
    parts += _tests(test, frame, ink.test)
    parts += _not_numbers(train, frame, look)
    below = frame.bottom + (16 if marks else 4)
    parts += [drawn(mark, frame.x(mark.at), frame.bottom + 9, ink) for mark in marks]
    if losses.workers:
        parts += _strip(losses, frame, below, look)
        below += _STRIP + 6
    axis = Frame(frame.left, frame.top, frame.right, below, frame.x0, frame.x1, 0, 1)
    parts += rows
    parts.append(line(frame.left, frame.bottom, frame.right, frame.bottom, ink.line))
    parts += _axis(losses.axis, axis, look)
    return document(look, below + 24, losses.says(), parts)


def smoothed(points: Sequence[Loss], smooth: float) -> list[Loss]:
    """The mean over the points around each where the loss is a number; `smooth` as in `draw_losses`."""
    known = [point for point in points if math.isfinite(point.loss)]
    half = round(min(1.0, smooth) * len(known) / 6)
    if half < 1:
        return []
    found = []
    for at, point in enumerate(known):
        around = known[max(0, at - half) : at + half + 1]
        found.append(Loss(point.x, sum(bounded(each.loss) / len(around) for each in around)))
    return found


def _few(losses: Losses, known: Sequence[Loss]) -> str:
    if not losses.train and not losses.test:
        return losses.says()
    if not known:
        return f"{losses.name}: one update so far, and its loss is not a number."
    return f"{losses.name}: one update so far, with a loss of {known[0].loss:.4g}. The curve begins with the second."


def _frame(train: Sequence[Loss], test: Sequence[Loss], known: Sequence[Loss], top: float, look: Look) -> Frame:
    xs = [bounded(point.x) for point in [*train, *test]]
    ys = [bounded(point.loss) for point in known] or [0.0, 1.0]
    low, high = min(ys), max(ys)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    # A loss is above 0 nearly always: an axis that goes below it would suggest otherwise.
    floor = 0.0 if 0 <= low <= 0.4 * high else low - room
    right = look.width - 10
    bottom = top + look.height(0.36, 130, 380)
    return Frame(_LEFT, top, right, bottom, min(xs), max(max(xs), min(xs) + 1e-9), floor, high + room)


def _entries(
    losses: Losses, train: Sequence[Loss], test: Sequence[Loss], has_line: bool, look: Look
) -> list[tuple[str, str]]:
    ink = look.ink
    found = []
    if train:
        found.append((tag("path", d="M-7 0H7", stroke=ink.train, stroke_width=2.5), "training loss"))
    if has_line:
        found.append((tag("circle", r=2, fill=ink.train, opacity="0.6"), "each update"))
    if test:
        across = tag("path", d="M-7 0H7", stroke=ink.test, stroke_width=2)
        found.append((across + tag("circle", r=3.5, fill=ink.test), "test loss"))
    if any(not math.isfinite(point.loss) for point in train):
        found.append((_cross(look), "not a number"))
    return [*found, *entries(losses.marks, ink)]


def _cross(look: Look) -> str:
    return tag("path", d="M-4 -4L4 4M-4 4L4 -4", stroke=look.ink.warn, stroke_width=2)


def _curve(points: Sequence[Loss], frame: Frame, colour: str, *, faint: bool) -> Iterator[str]:
    yield from _polylines(points, frame, colour, 1 if faint else 1.8, "0.35" if faint else None)
    if faint or len(points) <= 60:
        dots = "".join(
            f"M{num(frame.x(bounded(p.x)))} {num(frame.y(bounded(p.loss)))}h0" for p in points if math.isfinite(p.loss)
        )
        wide, opacity = (3, "0.5") if faint else (4, None)
        yield tag("path", d=dots, stroke=colour, stroke_width=wide, stroke_linecap="round", opacity=opacity)


def _polylines(
    points: Sequence[Loss], frame: Frame, colour: str, wide: float, opacity: str | None = None
) -> Iterator[str]:
    """A line for each run of numbers: one that is none breaks it."""
    runs: list[list[str]] = [[]]
    for point in points:
        if math.isfinite(point.loss):
            runs[-1].append(f"{num(frame.x(bounded(point.x)))},{num(frame.y(bounded(point.loss)))}")
        elif runs[-1]:
            runs.append([])
    for run in runs:
        if len(run) > 1:
            path = " ".join(run)
            yield tag("polyline", points=path, fill="none", stroke=colour, stroke_width=wide, opacity=opacity)


def _tests(points: Sequence[Loss], frame: Frame, colour: str) -> Iterator[str]:
    yield from _polylines(points, frame, colour, 1.8)
    for point in points:
        if math.isfinite(point.loss):
            x, y = frame.x(bounded(point.x)), frame.y(bounded(point.loss))
            spot = tag("circle", cx=x, cy=y, r=3.5 if len(points) <= 60 else 2, fill=colour)
            yield told(spot, f"test loss {point.loss:.4g}")


def _not_numbers(points: Sequence[Loss], frame: Frame, look: Look) -> Iterator[str]:
    last = -math.inf
    for point in points:
        x = frame.x(bounded(point.x))
        if not math.isfinite(point.loss) and x - last >= 6:
            last = x
            yield told(moved(_cross(look), x, frame.top + 6), "the loss is not a number here")


def _strip(losses: Losses, frame: Frame, top: float, look: Look) -> Iterator[str]:
    """The number of workers as a step, with the figures where there is room."""
    ink = look.ink
    # From the newest backwards: a strip without its end would be worse than one without its beginning.
    steps = [(bounded(x), count) for x, count in losses.workers if math.isfinite(x)][-MOST_POINTS:]
    most = max([1, *(count for _, count in steps)])
    yield words(frame.left - 6, top + _STRIP - 2, "workers", ink.soft, anchor="end")
    for (x, count), (after, _) in pairwise([*steps, (frame.x1, 0)]):
        left, right = frame.x(x), frame.x(after)
        tall, wide = count / most * _STRIP, max(0.0, right - left)
        box = tag("rect", x=left, y=top + _STRIP - tall, width=wide, height=tall, fill=ink.good, opacity="0.45")
        yield told(box, _workers(count))
        if right - left > width_of(str(count), SMALL) + 6:
            yield words((left + right) / 2, top + _STRIP - 5, str(count), ink.text, anchor="middle")
    yield line(frame.left, top + _STRIP, frame.right, top + _STRIP, ink.line)


def _axis(kind: str, frame: Frame, look: Look) -> list[str]:
    if kind == "time":
        return time_axis(frame, look, clock=True)
    about = max(2, int((frame.right - frame.left) // 90))
    values = scales.ticks(frame.x0, frame.x1, about)
    title = shortened({"samples": "samples", "updates": "updates"}[kind], 80, SMALL)
    return scales.x_axis(frame, look, [(value, scales.number(value)) for value in values], title)
