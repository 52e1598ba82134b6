"""The loss of a training: at each update, smoothed, in validations, and the number of workers.

Points stay visible under the smooth line. A loss that is not a number is a cross at the upper edge, never only a gap.
Below the curve are marks of events and a strip with the number of workers, over the same x axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from edt_sdk.pictures.curves import (
    LEFT,
    MOST_POINTS,
    Loss,
    dots,
    drawable,
    lines,
    loss_axis,
    loss_frame,
    loss_grid,
    smoothed,
)
from edt_sdk.pictures.parts.lettering import counted_workers, width_of
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.marks import Mark, drawn, entries, gathered
from edt_sdk.pictures.parts.paper import SMALL, document, legend, line, moved, notice, tag, told, words
from edt_sdk.pictures.parts.scales import Frame, bounded

NO_UPDATE = "No update yet: the curve begins with the first one."
_STRIP = 26
_FEW = 60  # up to so many points are drawn as dots too


@dataclass(frozen=True, slots=True)
class Losses:
    """The data of the picture.

    Attributes:
        train: one point an update, oldest first. At most `MOST_POINTS` are drawn.
        test: one point a validation.
        workers: pairs of an x and the number of workers from there on.
        marks: events, at their x.
        axis: the x axis, one of `curves.AXES`. Time is in seconds since the epoch.
        empty: the sentence for a picture without any point.
        stretch: the drawn part of the x axis, None for the whole axis.
    """

    name: str
    train: tuple[Loss, ...]
    test: tuple[Loss, ...] = ()
    workers: tuple[tuple[float, int], ...] = ()
    marks: tuple[Mark, ...] = ()
    axis: str = "samples"
    empty: str = NO_UPDATE
    stretch: tuple[float, float] | None = None

    def between(self, start: float | None, end: float | None) -> Losses:
        """Return the part from `start` to `end` of the x axis. None is the first or the last update.

        Earlier numbers of workers are kept, because the last of them holds at the start of the part.
        """
        if not self.train:
            return self
        low = self.train[0].x if start is None else start
        high = self.train[-1].x if end is None else end
        return replace(
            self,
            train=tuple(point for point in self.train if low <= point.x <= high),
            test=tuple(point for point in self.test if low <= point.x <= high),
            marks=tuple(mark for mark in self.marks if low <= mark.at <= high),
            stretch=(low, high),
        )

    def says(self) -> str:
        """Return the picture as one sentence."""
        if self.stretch is not None and len(self.train) + len(self.test) < 2:
            return f"{self.name}: there are fewer than two updates in this stretch. Choose a longer one."
        points = [*self.train, *self.test]
        if not points:
            return f"{self.name}: {self.empty[:1].lower()}{self.empty[1:]}"
        if len(points) == 1 and not points[0].known:
            return f"{self.name}: one update so far, and its loss is not a number."
        if len(points) == 1:
            loss = f"{points[0].loss:.4g}"
            return f"{self.name}: one update so far, with a loss of {loss}. The curve begins with the second."
        numbers = [point.loss for point in self.train if point.known]
        parts = [f"training loss from {numbers[0]:.4g} to {numbers[-1]:.4g}"] if numbers else []
        if self.train and not numbers:
            parts.append("the training loss is not a number")
        elif len(numbers) < len(self.train):
            parts.append("now and then it is not a number")
        tests = [point.loss for point in self.test if point.known]
        parts += [f"test loss {tests[-1]:.4g}"] if tests else []
        if counts := sorted({count for _, count in self.workers}):
            many = f"{counts[0]} to {counted_workers(counts[-1])}" if len(counts) > 1 else counted_workers(counts[0])
            parts.append(f"computed by {many}")
        return f"{self.name}: {', '.join(parts) or 'no loss is a number'}."


def draw_losses(losses: Losses, look: Look | None = None, *, smooth: float = 0.0, log: bool = False) -> str:
    """Draw the picture as an SVG document.

    `smooth` is from 0, not at all, to 1, the mean over a third of the points around each. The points stay visible. With
    `log` the y axis is logarithmic, which shows changes of a small loss.
    """
    look = look or Look()
    # Thinned before anything is laid out: the size of the picture stays bounded (028).
    train, test = drawable(losses.train), drawable(losses.test)
    if len(train) + len(test) < 2:
        return notice(look, losses.says())
    ink = look.ink
    smooth_line = smoothed(train, smooth)
    rows, high = legend(look, LEFT, 4, _entries(losses, train, test, bool(smooth_line), look))
    top = high + 18
    frame = loss_frame([*train, *test], top, top + look.height(0.34, 130, 380), look.width - 10, log=log)
    if losses.stretch is not None:
        first, last = map(bounded, losses.stretch)
        # The requested part of the axis, also where no update lies at its ends.
        frame = replace(frame, x0=first, x1=last)
    parts = [*rows, *loss_grid(frame, look), words(6, frame.top - 7, "loss", ink.soft)]
    marks = gathered(losses.marks, frame.x)
    for mark in marks:
        if mark.kind != "checkpoint":
            parts.append(line(frame.x(mark.at), frame.top, frame.x(mark.at), frame.bottom, ink.text, opacity="0.3"))
    parts += lines(train, frame, ink.train, 1 if smooth_line else 1.8, opacity="0.3" if smooth_line else None)
    if smooth_line or len(train) <= _FEW:
        parts.append(dots(train, frame, ink.train, 3 if smooth_line else 5, opacity="0.5" if smooth_line else None))
    parts += lines(smooth_line, frame, ink.train, 2.4)
    parts += _tests(test, frame, ink.test)
    parts += _not_numbers(train, frame, look)
    parts.append(line(frame.left, frame.bottom, frame.right, frame.bottom, ink.line))
    below = frame.bottom + (18 if marks else 6)
    parts += [drawn(mark, frame.x(mark.at), frame.bottom + 10, ink) for mark in marks]
    if losses.workers:
        parts += _strip(losses, frame, below, look)
        below += _STRIP
    parts += loss_axis(losses.axis, Frame(frame.left, top, frame.right, below, frame.x0, frame.x1, 0, 1), look)
    return document(look, below + 24, losses.says(), parts, across=frame.across)


def _entries(
    losses: Losses, train: Sequence[Loss], test: Sequence[Loss], smooth: bool, look: Look
) -> list[tuple[str, str]]:
    ink = look.ink
    across = "M-7 0H7"
    found = []
    if train:
        name = "training loss, smoothed" if smooth else "training loss"
        found.append((tag("path", d=across, stroke=ink.train, stroke_width=2.5), name))
    if smooth:
        found.append((tag("circle", r=2, fill=ink.train, opacity="0.6"), "as it was"))
    if test:
        stroke = tag("path", d=across, stroke=ink.test, stroke_width=2)
        found.append((stroke + tag("circle", r=3.5, fill=ink.test), "test loss"))
    if not all(point.known for point in train):
        found.append((_cross(look), "not a number"))
    return [*found, *entries(losses.marks, ink, "workers")]


def _cross(look: Look) -> str:
    return tag("path", d="M-4 -4L4 4M-4 4L4 -4", stroke=look.ink.warn, stroke_width=2)


def _tests(points: Sequence[Loss], frame: Frame, colour: str) -> Iterator[str]:
    yield from lines(points, frame, colour, 1.8)
    # Beyond these few, one path without tooltips keeps the picture small.
    if len(points) > _FEW:
        yield dots(points, frame, colour, 4)
        return
    for point in points:
        if point.known:
            spot = tag("circle", cx=frame.x(point.x), cy=frame.y(point.loss), r=3.5, fill=colour)
            yield told(spot, f"test loss {point.loss:.4g}")


def _not_numbers(points: Sequence[Loss], frame: Frame, look: Look) -> Iterator[str]:
    last = -math.inf
    for point in points:
        x = frame.x(point.x)
        # Crosses closer than their own width would become a bar.
        if not point.known and x - last >= 8:
            last = x
            yield told(moved(_cross(look), x, frame.top + 6), "the loss is not a number here")


def _strip(losses: Losses, frame: Frame, top: float, look: Look) -> Iterator[str]:
    """Draw the number of workers as steps, with figures where there is room."""
    ink = look.ink
    # Keep the newest steps: a strip without its end would be worse than one without its start.
    steps = [(bounded(x), count) for x, count in losses.workers if math.isfinite(x)][-MOST_POINTS:]
    most = max([1, *(count for _, count in steps)])
    yield words(frame.left - 6, top + _STRIP - 4, "workers", ink.soft, anchor="end")
    for (x, count), (after, _) in pairwise([*steps, (frame.x1, 0)]):
        left, wide = frame.x(x), frame.x(after) - frame.x(x)
        if wide <= 0:
            continue
        tall = min(1.0, max(0.0, count / most)) * (_STRIP - 3)
        box = tag("rect", x=left, y=top + _STRIP - tall, width=wide, height=tall, fill=ink.good, fill_opacity="0.4")
        yield told(box, counted_workers(count))
        if wide > width_of(str(count), SMALL) + 6:
            yield words(left + wide / 2, top + _STRIP - 5, str(count), ink.text, anchor="middle")
