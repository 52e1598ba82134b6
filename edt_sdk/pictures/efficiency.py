"""The gain of more workers: throughput at each number of workers, against linear scaling from the smallest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.lettering import counted_workers, width_of
from edt_sdk.pictures.parts.look import Look
from edt_sdk.pictures.parts.paper import SMALL, document, legend, line, notice, tag, told, words
from edt_sdk.pictures.parts.scales import Frame, bounded

_LEFT = 62
_MOST = 64
_LEAST = 1e-9  # samples per second below which a speed counts as none


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """One measured speed: workers, samples per second, and the seconds of the measurement."""

    workers: int
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The data of the picture: a job's name, and one speed for each number of workers."""

    name: str
    speeds: tuple[MeasuredSpeed, ...]

    @property
    def usable(self) -> list[MeasuredSpeed]:
        """Return the speeds that are numbers, by workers."""
        # The speeds come from a file and may be anything. A speed of 0 or infinity would break the ratios below.
        known = {speed.workers: speed for speed in self.speeds if speed.workers > 0 and _LEAST < speed.rate < math.inf}
        return [known[workers] for workers in sorted(known)]

    def share(self, speed: MeasuredSpeed) -> float:
        """Return the throughput divided by linear scaling from the smallest size. 1 is ideal."""
        first = self.usable[0]
        return bounded(speed.rate) / speed.workers / (bounded(first.rate) / first.workers)

    def says(self) -> str:
        """Return the picture as one sentence."""
        speeds = self.usable
        if not speeds:
            return f"{self.name}: nothing is measured yet; the first points come some updates after the training began."
        rate = f"{scales.number(speeds[0].rate)} samples per second with {counted_workers(speeds[0].workers)}"
        if len(speeds) == 1:
            return f"{self.name}: {rate}. What more or fewer bring is shown when it has run with another number."
        last = speeds[-1]
        return (
            f"{self.name}: {rate}, {scales.number(last.rate)} with {counted_workers(last.workers)}: "
            f"{100 * self.share(last):.0f} % of ideal."
        )


def draw_efficiency(efficiency: Efficiency, look: Look | None = None) -> str:
    """Draw the picture as an SVG document."""
    look = look or Look()
    speeds = efficiency.usable[:_MOST]
    # A single speed has nothing to be compared with.
    if len(speeds) < 2:
        return notice(look, efficiency.says())
    ink = look.ink
    entries = [
        (tag("circle", r=4, fill=ink.train), "measured"),
        (tag("path", d="M-7 0H7", stroke=ink.text, stroke_dasharray="4 3"), "ideal: as many times the smallest"),
    ]
    rows, high = legend(look, _LEFT, 4, entries)
    top = high + 22
    first, last = speeds[0], speeds[-1]
    ideal = bounded(first.rate) / first.workers * last.workers
    most = max([ideal, *(bounded(speed.rate) for speed in speeds)]) * 1.08
    # Both axes start at 0, so that ideal scaling is a straight line from the corner.
    frame = Frame(_LEFT, top, look.width - 24, top + look.height(0.26, 120, 280), 0, last.workers * 1.04, 0, most)
    parts = [*rows, words(6, top - 10, "samples per second", ink.soft)]
    parts += scales.y_axis(frame, look, scales.numbers(scales.ticks(0, most)))
    ends = (frame.x(0), frame.y(0), frame.x(last.workers), frame.y(ideal))
    parts.append(tag("path", d=_path(ends), stroke=ink.text, stroke_dasharray="4 3", fill="none"))
    places = " ".join(f"{frame.x(s.workers):.1f},{frame.y(bounded(s.rate)):.1f}" for s in speeds)
    parts.append(tag("polyline", points=places, fill="none", stroke=ink.train, stroke_width=1.8))
    parts += _dots(efficiency, frame, look)
    about = max(2, min(last.workers, int((frame.right - frame.left) // 48)))
    parts += scales.x_axis(frame, look, scales.whole_ticks(last.workers, about), "")
    parts.append(words(frame.right, frame.bottom + 32, "workers", ink.soft, anchor="end"))
    parts.append(line(frame.left, frame.bottom, frame.right, frame.bottom, ink.line))
    return document(look, frame.bottom + 40, efficiency.says(), parts)


def _path(ends: tuple[float, float, float, float]) -> str:
    return "M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*ends)


def _dots(efficiency: Efficiency, frame: Frame, look: Look) -> Iterator[str]:
    """Label each point with its share of the ideal, where the label does not touch the one before."""
    last = -math.inf
    for speed in efficiency.usable[:_MOST]:
        x, y = frame.x(speed.workers), frame.y(bounded(speed.rate))
        share = f"{100 * efficiency.share(speed):.0f} %"
        text = (
            f"{scales.number(speed.rate)} samples per second with {counted_workers(speed.workers)}, {share} of ideal, "
            f"measured over {scales.span(speed.seconds)}"
        )
        yield told(tag("circle", cx=x, cy=y, r=4, fill=look.ink.train), text)
        half = width_of(share, SMALL) / 2
        if x - half > last + 4 and x + half < look.width - 2:
            yield words(x, min(y + 18, frame.bottom - 4), share, look.ink.text, anchor="middle")
            last = x + half
