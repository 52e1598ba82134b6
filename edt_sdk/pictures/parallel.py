"""The trials of a search in parallel coordinates: an axis for each hyper-parameter, a line a trial."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.extremes import fewest
from edt_sdk.pictures.parts.lettering import shortened
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import SMALL, document, legend, line, notice, num, tag, told, words
from edt_sdk.pictures.parts.trials import MOST_DOTS, MOST_TOLD, TrialDot, drawable, reach

_LEFT, _LABELS = 12.0, 62.0  # beside the axes; the labels of an axis stand to its right
_APART = 84.0  # between two axes, at least
_LINE_GAP = 14.0


@dataclass(frozen=True, slots=True)
class ValueAxis:
    """One axis: a name and the ends of its range, or the choices in their order, of which a value is the index."""

    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    choices: tuple[str, ...] = ()

    def place(self, value: float) -> float:
        """Return where a value lies, from the lower end (0) to the upper one (1)."""
        if self.choices:
            return scales.share(value + 0.5, 0, len(self.choices))
        low, high = self._ends
        if high - low < scales.NARROWEST:
            return 0.5
        if self._logarithmic:
            return scales.share(math.log(max(value, low)), math.log(low), math.log(high))
        return scales.share(value, low, high)

    def labels(self, about: int) -> list[tuple[float, str]]:
        """Return about so many places with their labels, from the lower end on."""
        if self.choices:
            return [(self.place(at), text) for at, text in enumerate(self.choices)]
        low, high = self._ends
        if high - low < scales.NARROWEST:
            return [(0.5, scales.number(low))]
        some = scales.log_ticks(low, high) if self._logarithmic else scales.ticks(low, high, about)
        return [(self.place(value), scales.number(value)) for value in some]

    @property
    def _ends(self) -> tuple[float, float]:
        return scales.bounded(self.low), scales.bounded(self.high)

    @property
    def _logarithmic(self) -> bool:
        return self.log and self._ends[0] > 0


@dataclass(frozen=True, slots=True)
class ParallelTrials:
    """The data of the picture.

    Attributes:
        name, metric, maximize: of the search.
        axes: one for each hyper-parameter.
        lines: of each trial its value and its place on each axis.
    """

    name: str
    metric: str
    maximize: bool
    axes: tuple[ValueAxis, ...]
    lines: tuple[tuple[TrialDot, tuple[float, ...]], ...]

    def ordered(self) -> list[tuple[TrialDot, tuple[float, ...]]]:
        """Return the lines that have a place, the best one last: more epochs first, then the value."""
        known = [(dot, values) for each, values in self.lines for dot in drawable([each])]
        return sorted(known, key=lambda each: (each[0].rank, each[0].value if self.maximize else -each[0].value))

    def says(self) -> str:
        """Return the picture as one sentence."""
        lines = self.ordered()
        if not lines:
            return f"{self.name}: no trial has a value of {self.metric} yet."
        over = ", ".join(axis.name for axis in self.axes) or "no hyper-parameter"
        count = f"{len(lines):,} trial{'s' * (len(lines) != 1)}"
        return f"{self.name}: {self.metric} of {count} over {over}; the best is {lines[-1][0].text}."


def draw_parallel(trials: ParallelTrials, look: Look | None = None) -> str:
    """Draw the picture as an SVG document."""
    look = look or Look()
    ink, lines = look.ink, trials.ordered()
    if not lines:
        return notice(look, trials.says())
    some = fewest(lines, MOST_DOTS, lambda each: each[0].value)
    last = ValueAxis(trials.metric, *reach([dot for dot, _ in some]))
    room = look.width - _LEFT - _LABELS
    shown = trials.axes[: max(1, int(room / _APART))]
    axes = [*shown, last]
    best, other = (
        tag("path", d="M-7 0H7", stroke=stroke, stroke_width=2, fill="none") for stroke in (ink.test, ink.train)
    )
    head, high = legend(look, _LEFT, 4, [(best, "the best"), (other, "the others, better ones darker")])
    top = high + 30
    bottom = top + look.height(0.34, 140, 340)
    places = [_LEFT + room * at / max(1, len(axes) - 1) for at in range(len(axes))]
    parts = [*head]
    for at, (dot, values) in enumerate(some):
        heights = [axis.place(value) for axis, value in zip(axes, (*values[: len(shown)], dot.value), strict=True)]
        points = (f"{num(x)} {num(bottom - up * (bottom - top))}" for x, up in zip(places, heights, strict=True))
        is_best = at == len(some) - 1
        drawn = tag(
            "path",
            d="M" + "L".join(points),
            fill="none",
            stroke=ink.test if is_best else ink.train,
            stroke_width=2.5 if is_best else 1.2,
            data_trial=f"{dot.at:.0f}",
            opacity=None if is_best else f"{0.22 + 0.55 * (at / len(some)) ** 2:.2f}",
        )
        parts.append(told(drawn, dot.text) if len(some) <= MOST_TOLD else drawn)
    apart = room / max(1, len(axes) - 1)
    for axis, x in zip(axes, places, strict=True):
        parts += _axis(axis, x, top, bottom, apart if axis is not last else _LABELS, look)
        # The metric has the last word, which reaches back over the room between the axes.
        back = 0.4 * apart
        if axis is last:
            name = shortened(axis.name, _LABELS + back - 8, SMALL)
            parts.append(words(look.width - 4, top - 10, name, ink.text, bold=True, anchor="end"))
        else:
            name = shortened(axis.name, apart - 8 - (back if axis is shown[-1] else 0), SMALL)
            parts.append(words(x - 4, top - 10, name, ink.text, bold=True))
    more = len(trials.axes) - len(shown)
    if more:
        parts.append(words(_LEFT, bottom + 18, f"… and {more} more hyper-parameter{'s' * (more != 1)}", ink.soft))
    return document(look, bottom + (26 if more else 12), trials.says(), parts)


def _axis(axis: ValueAxis, x: float, top: float, bottom: float, room: float, look: Look) -> Iterator[str]:
    # Front ends let a person choose trials by a part of an axis.
    yield tag("line", x1=x, y1=top, x2=x, y2=bottom, stroke=look.ink.text, data_axis="")
    last = math.inf
    for place, text in axis.labels(4):
        y = bottom - place * (bottom - top)
        if last - y >= _LINE_GAP:
            last = y
            yield line(x - 3, y, x + 3, y, look.ink.text)
            yield words(x + 6, y + 4, shortened(text, room - 12, SMALL), look.ink.soft)
