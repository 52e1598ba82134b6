"""The comparisons of a search, one a row: its trials by their values, what became of them, and where the cut was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.extremes import fewest
from edt_sdk.pictures.parts.lettering import shortened
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import SMALL, document, legend, line, notice, tag, words
from edt_sdk.pictures.parts.scales import Frame
from edt_sdk.pictures.parts.trials import MOST_DOTS, TrialDot, drawable, drawn, entries, reach

_MOST_ROWS = 20
_LABEL, _BAND, _GAP = 18.0, 26.0, 10.0


@dataclass(frozen=True, slots=True)
class RungRow:
    """One comparison.

    Attributes:
        bracket: the bracket of hyperband, 0 for other algorithms.
        budget: epochs after which its trials are compared, 0 for the end of their jobs.
        trials: how many have been given this far to train.
        reported: how many have reached it.
        promoted: how many of these were given more.
        dots: the trials that have a value, those that still run with their newest.
    """

    bracket: int
    budget: int
    trials: int
    reported: int
    promoted: int
    dots: tuple[TrialDot, ...]

    def cut(self, maximize: bool) -> float | None:
        """Return the value of the worst trial that went on, None while none has."""
        values = [dot.value for dot in drawable(self.dots) if dot.fate == "promoted"]
        return (min(values) if maximize else max(values)) if values else None

    @property
    def after(self) -> str:
        """After how many epochs."""
        return f"after {self.budget:,} epoch{'s' * (self.budget != 1)}" if self.budget else "at their end"

    @property
    def counted(self) -> str:
        """How far its trials are."""
        more = f", {self.promoted:,} went on" if self.promoted else ""
        return f"{self.reported:,} of {self.trials:,} compared{more}"


@dataclass(frozen=True, slots=True)
class RungChart:
    """The data of the picture: a search's name, its metric, whether more is better, and the comparisons in order."""

    name: str
    metric: str
    maximize: bool
    rows: tuple[RungRow, ...]

    def says(self) -> str:
        """Return the picture as one sentence."""
        if not self.rows:
            return f"{self.name}: no trial has begun to train yet."
        return f"{self.name}: " + "; ".join(f"{row.after} {row.counted}" for row in self.rows[:_MOST_ROWS]) + "."


def draw_rungs(chart: RungChart, look: Look | None = None) -> str:
    """Draw the picture as an SVG document."""
    look = look or Look()
    ink, rows = look.ink, chart.rows[:_MOST_ROWS]
    dots = [dot for row in rows for dot in drawable(row.dots)]
    if not dots:
        return notice(look, chart.says())
    swatch = tag("path", d="M0 -6V6", stroke=ink.test, stroke_width=2)
    cuts = [(swatch, "the cut")] if any(row.promoted for row in rows) else []
    head, high = legend(look, 12, 4, [*entries(dots, ink), *cuts])
    top = high + 10
    tall = _LABEL + _BAND + _GAP
    ends = reach(dots)
    frame = Frame(16, top, look.width - 16, top + tall * len(rows), *ends, 0, 1)
    parts = [*head]
    for number, row in enumerate(rows):
        parts += _row(row, chart, frame, top + tall * number, look, MOST_DOTS // len(rows))
    better = "more" if chart.maximize else "less"
    title = shortened(f"{chart.metric}, {better} is better", 0.5 * look.width, SMALL)
    about = max(2, int((frame.right - frame.left) // 90))
    parts += scales.x_axis(frame, look, scales.numbers(scales.ticks(*ends, about)), title)
    more = len(chart.rows) - len(rows)
    if more:
        parts.append(words(16, frame.bottom + 36, f"… and {more} more comparisons", ink.soft))
    return document(look, frame.bottom + (44 if more else 26), chart.says(), parts)


def _row(row: RungRow, chart: RungChart, frame: Frame, top: float, look: Look, most: int) -> Iterator[str]:
    ink = look.ink
    bracket = f"bracket {row.bracket} " if any(each.bracket for each in chart.rows) else ""
    text = shortened(f"{bracket}{row.after}: {row.counted}", frame.right - frame.left, SMALL)
    yield words(frame.left, top + 12, text, ink.text)
    middle = top + _LABEL + _BAND / 2
    yield line(frame.left, middle, frame.right, middle, ink.line, opacity="0.4")
    cut = row.cut(chart.maximize)
    if cut is not None:
        x = frame.x(cut) + (-7 if chart.maximize else 7)
        yield line(x, middle - _BAND / 2, x, middle + _BAND / 2, ink.test, wide=2)
    some = fewest(drawable(row.dots), max(4, most), lambda dot: dot.value)
    # Trials with nearly equal values lie in different heights.
    yield from drawn([(dot, frame.x(dot.value), middle + 4 * (dot.at * 2 % 5 - 2)) for dot in some], ink)
