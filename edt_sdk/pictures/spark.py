"""A small picture of a job for a card or a list: the loss without axes, progress, and slots."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edt_sdk.pictures.curves import Loss, drawable, lines
from edt_sdk.pictures.parts.lettering import shortened, width_of
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import SMALL, document, line, tag, words
from edt_sdk.pictures.parts.scales import Frame, number, share

_POINTS = 100
_CURVE, _BAR, _BOX = 34.0, 8.0, 7.0
_MOST_BOXES = 32


@dataclass(frozen=True, slots=True)
class Spark:
    """The data of the picture.

    Attributes:
        done: the share of updates, 0 … 1.
        most: slots it may have at most. 0 for an ended job, without boxes.
        losses: the curve.
        loss: the newest loss, which the curve may not have yet. Default: the last loss of the curve.
        result: what stands in the place of the loss, for a validation. "" while it is not known, None for the loss.
    """

    name: str
    state: str
    done: float
    slots: int
    most: int
    losses: tuple[float, ...] = ()
    loss: float | None = None
    result: str | None = None

    def figure(self) -> str:
        """Return what is written next to the curve."""
        newest = self.newest()
        return self.result if self.result is not None else "no loss yet" if newest is None else f"loss {number(newest)}"

    def newest(self) -> float | None:
        """Return the loss that is shown as a figure, None where none is known."""
        known = [loss for loss in self.losses if math.isfinite(loss)]
        return self.loss if self.loss is not None else known[-1] if known else None

    def says(self) -> str:
        """Return the picture as one sentence."""
        newest = self.newest()
        parts = [f"{self.name} ({self.state}): {100 * share(self.done):.0f} % done"]
        parts += [f"{self.slots} of at most {self.most} slots"] if self.most else []
        parts.append(self.figure() if self.result is not None or newest is None else f"loss {newest:.4g}")
        return f"{', '.join(filter(None, parts))}."


def draw_spark(spark: Spark, look: Look | None = None) -> str:
    """Draw the picture as an SVG document."""
    look = look or Look(width=260)
    ink = look.ink
    points = drawable([Loss(float(at), loss) for at, loss in enumerate(spark.losses)], _POINTS)
    known = [point.loss for point in points if point.known]
    figure = shortened(spark.figure(), look.width - 12, SMALL)
    right = look.width - 8 - width_of(figure, SMALL)
    parts = [words(look.width - 2, 4 + _CURVE / 2 + 4, figure, ink.text, anchor="end")]
    parts.append(line(2, 4 + _CURVE, right, 4 + _CURVE, ink.line, opacity="0.6"))
    if len(known) > 1:
        room = (max(known) - min(known)) or 1.0
        frame = Frame(2, 5, right, 2 + _CURVE, points[0].x, points[-1].x, min(known), min(known) + room)
        parts += lines(points, frame, ink.train, 1.6)
    top = 10 + _CURVE
    done = f"{100 * share(spark.done):.0f} %"
    end = look.width - 8 - width_of("100 %", SMALL)
    parts.append(tag("rect", x=0.5, y=top, width=end, height=_BAR, rx=3, fill="none", stroke=ink.line))
    parts.append(tag("rect", x=0.5, y=top, width=max(0.0, share(spark.done) * end), height=_BAR, rx=3, fill=ink.train))
    parts.append(words(look.width - 2, top + _BAR, done, ink.text, anchor="end"))
    top += _BAR + 7
    text = shortened(_slots(spark), look.width - 8, SMALL)
    room_left = look.width - 12 - width_of(text, SMALL)
    shown = min(spark.most, _MOST_BOXES, max(0, int(room_left // 9)))
    for at in range(shown):
        # With more slots than boxes each box stands for several, and the filled share stays the same.
        fill = ink.good if at < min(spark.slots, spark.most) * shown / spark.most else "none"
        parts.append(tag("rect", x=0.5 + 9 * at, y=top, width=_BOX, height=_BOX, rx=1.5, fill=fill, stroke=ink.line))
    parts.append(words(look.width - 2, top + _BOX, text, ink.soft, anchor="end"))
    return document(look, top + _BOX + 5, spark.says(), parts)


def _slots(spark: Spark) -> str:
    return f"{spark.slots} of {spark.most} slots" if spark.most else spark.state.lower()
