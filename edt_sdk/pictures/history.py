"""The history of a search: the value of each trial by its number or its end, and the best so far."""

from __future__ import annotations

from dataclasses import dataclass

from edt_sdk.pictures.curves import LEFT
from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.extremes import fewest
from edt_sdk.pictures.parts.lettering import shortened
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import SMALL, document, legend, notice, num, tag, words
from edt_sdk.pictures.parts.scales import Frame
from edt_sdk.pictures.parts.trials import MOST_DOTS, TrialDot, drawable, drawn, entries, reach

AXES = ("number", "time")


@dataclass(frozen=True, slots=True)
class ValueHistory:
    """The data of the picture: a search's name, its metric, whether more is better, dots, and one of `AXES`."""

    name: str
    metric: str
    maximize: bool
    dots: tuple[TrialDot, ...]
    axis: str = "number"

    def bests(self) -> list[TrialDot]:
        """Return the dots at which the best so far changes: among those compared last after the most epochs."""
        found: list[TrialDot] = []
        for dot in sorted(drawable(self.dots), key=lambda dot: dot.at):
            best = found[-1] if found else None
            if dot.fate != "failed" and (best is None or self._key(dot) > self._key(best)):
                found.append(dot)
        return found

    def _key(self, dot: TrialDot) -> tuple[int, float]:
        return dot.rank, dot.value if self.maximize else -dot.value

    def says(self) -> str:
        """Return the picture as one sentence."""
        bests = self.bests()
        if not bests:
            return f"{self.name}: no trial has a value of {self.metric} yet."
        count = len(drawable(self.dots))
        return (
            f"{self.name}: {self.metric} of {count:,} trial{'s' * (count != 1)}; the best so far is {bests[-1].text}."
        )


def draw_history(history: ValueHistory, look: Look | None = None) -> str:
    """Draw the picture as an SVG document."""
    look = look or Look()
    dots, bests, ink = drawable(history.dots), history.bests(), look.ink
    if not bests:
        return notice(look, history.says())
    rows, high = legend(
        look,
        LEFT,
        4,
        [
            *entries(dots, ink),
            (tag("path", d="M-7 3H0V-3H7", stroke=ink.test, fill="none", stroke_width=2), "best so far"),
        ],
    )
    top, low = high + 22, reach(dots)
    first, last = min(dot.at for dot in dots), max(dot.at for dot in dots)
    if history.axis == "number":
        first, last = 0.0, max(1.0, last)
    last = max(last, first + max(1e-9, abs(first) * 1e-9))
    frame = Frame(LEFT, top, look.width - 16, top + look.height(0.3, 130, 320), first, last, *low)
    metric = shortened(history.metric, look.width - 12, SMALL)
    parts = [*rows, words(6, top - 10, metric, ink.soft)]
    parts += scales.y_axis(frame, look, scales.numbers(scales.ticks(*low)))
    if history.axis == "number":
        about = max(2, min(int(last), int((frame.right - frame.left) // 60)))
        parts += scales.x_axis(frame, look, scales.whole_ticks(last, about), "trial")
    else:
        parts += scales.time_axis(frame, look, clock=True)
    path = f"M{num(frame.x(bests[0].at))} {num(frame.y(bests[0].value))}"
    path += "".join(
        f"H{num(frame.x(dot.at))}V{num(frame.y(dot.value))}" for dot in fewest(bests[1:], 400, lambda dot: dot.value)
    )
    parts.append(tag("path", d=f"{path}H{num(frame.right)}", stroke=ink.test, fill="none", stroke_width=2))
    some = fewest(dots, MOST_DOTS, lambda dot: dot.value)
    parts += drawn([(dot, frame.x(dot.at), frame.y(dot.value)) for dot in some], ink)
    return document(look, frame.bottom + 26, history.says(), parts)
