"""Who held how many slots over time, stacked: a pure function from a run to SVG.

One colour per job where there are few, else per application; the dashed line is the capacity. Mid-tones on a
transparent ground, and text that follows the reader's light or dark theme; the sentence in `aria-label` tells what
there is to see. However long the run, the picture has at most `COLUMNS` columns, each the mean of its time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from edt_server.simulator.engine import Life, Run

COLUMNS = 240
COLOURS = ("#3b7dd8", "#c8741a", "#4c9f70", "#a05fb4", "#c9515c", "#2f9aa0", "#9a8433", "#8a8a8a")
OTHERS = "others"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LEGEND = 860, 300, 52, 20, 24, 34, 24
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .small { font-size: 11px; fill: #57606a }
  path { shape-rendering: crispEdges }
  .axis { stroke: #57606a; stroke-width: 1 }
  .capacity { stroke: #24292f; stroke-width: 1.5; stroke-dasharray: 6 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9da7b3 } .axis { stroke: #9da7b3 } .capacity { stroke: #e6edf3 }
  }"""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What is drawn.

    Attributes:
        edges: seconds; column i lies between edges i and i + 1.
        bands: (name, slots in each column), the lowest first.
        capacity: slots there are.
    """

    edges: tuple[float, ...]
    bands: tuple[tuple[str, tuple[float, ...]], ...]
    capacity: int

    def says(self) -> str:
        """The picture in one sentence."""
        areas = {name: _area(self.edges, values) for name, values in self.bands}
        total, span = sum(areas.values()), self.edges[-1] - self.edges[0] if self.edges else 0.0
        if not total:
            return f"No job held any of {self.capacity} slots."
        mean = total / span
        shares = ", ".join(f"{name} {100 * area / total:.0f} %" for name, area in areas.items())
        return f"Slots held over {_span(span)}: {mean:.1f} of {self.capacity} on average; of these {shares}."


def allocation(run: Run) -> Allocation:
    """Who held how many slots when, in at most `COLUMNS` columns; exact where there are no more changes than that."""
    lives = [life for life in run.lives if life.sizes]
    times = sorted({time for life in lives for time, _ in life.sizes})
    if len(times) > COLUMNS + 1:
        step = (times[-1] - times[0]) / COLUMNS
        times = [times[0] + step * number for number in range(COLUMNS)] + [times[-1]]
    grouped: dict[str, list[float]] = defaultdict(lambda: [0.0] * max(0, len(times) - 1))
    name = _naming(lives)
    for life in lives:
        _spread(life, times, grouped[name(life)])
    largest_first = sorted(grouped, key=lambda each: (each == OTHERS, -_area(times, grouped[each]), each))
    return Allocation(tuple(times), tuple((each, tuple(grouped[each])) for each in largest_first), run.slots)


def draw(held: Allocation) -> str:
    """The picture as an SVG document that stands alone."""
    begin, end = (held.edges[0], held.edges[-1]) if len(held.edges) > 1 else (0.0, 1.0)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    most = max([held.capacity, *map(sum, zip(*(values for _, values in held.bands), strict=True)), 1])

    def x(time: float) -> str:
        return _short(LEFT + wide * (time - begin) / ((end - begin) or 1.0))

    def y(slots: float) -> str:
        return _short(TOP + high * (1 - slots / most))

    parts = list(_areas(held, x, y))
    for slots in _round_numbers(most, 5):
        parts.append(
            f'<text class="small" x="{LEFT - 8}" y="{float(y(slots)) + 4:g}" text-anchor="end">{slots:g}</text>'
        )
    scale, unit = _unit(end - begin)
    for value in _round_numbers((end - begin) / scale, 8):
        place = x(begin + value * scale)
        parts.append(f'<line class="axis" x1="{place}" x2="{place}" y1="{TOP + high}" y2="{TOP + high + 5}"/>')
        label = f"{value:g} {unit}"
        parts.append(f'<text class="small" x="{place}" y="{TOP + high + 18}" text-anchor="middle">{label}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{TOP + high}" y2="{TOP + high}"/>')
    parts.append(
        f'<line class="capacity" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(held.capacity)}" y2="{y(held.capacity)}"/>'
    )
    label = f"{held.capacity} slot{'' if held.capacity == 1 else 's'}"
    level = float(y(held.capacity)) - 6
    parts.append(f'<text class="small" x="{WIDTH - RIGHT}" y="{level:g}" text-anchor="end">{label}</text>')
    parts += _legend([name for name, _ in held.bands])
    total = HEIGHT + LEGEND * -(-len(held.bands) // 4)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" role="img"'
        f" aria-label={quoteattr(held.says())}>\n<style>{STYLE}\n</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _areas(held: Allocation, x: Callable[[float], str], y: Callable[[float], str]) -> Iterator[str]:
    """One closed shape per band, its steps along the top from left to right and back along the bottom."""
    below = [0.0] * (len(held.edges) - 1)
    for number, (name, values) in enumerate(held.bands):
        above = [low + value for low, value in zip(below, values, strict=True)]
        path = f"M{x(held.edges[0])},{y(below[0])}"
        path += "".join(f"V{y(top)}H{x(right)}" for top, right in zip(above, held.edges[1:], strict=True))
        path += "".join(f"V{y(low)}H{x(left)}" for low, left in zip(below[::-1], held.edges[-2::-1], strict=True))
        colour = COLOURS[number % len(COLOURS)]
        yield f'<path d="{path}Z" fill="{colour}"><title>{escape(name)}</title></path>'
        below = above


def _legend(names: Sequence[str]) -> Iterator[str]:
    wide = (WIDTH - LEFT - RIGHT) / 4
    for number, name in enumerate(names):
        left, top = LEFT + wide * (number % 4), HEIGHT + LEGEND * (number // 4)
        shown = name if len(name) <= 24 else f"{name[:23]}…"
        yield f'<rect x="{left:g}" y="{top}" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>'
        yield f'<text x="{left + 18:g}" y="{top + 10}">{escape(shown)}</text>'


def _naming(lives: Sequence[Life]) -> Callable[[Life], str]:
    """The band of a life: its job, or its application where there are many; those with the least work are others."""
    most = len(COLOURS)
    if len(lives) <= most:
        return lambda life: life.job.name
    held: dict[str, float] = defaultdict(float)
    for life in lives:
        held[life.job.application] += sum(size * (after - at) for (at, size), (after, _) in pairwise(life.sizes))
    kept = sorted(held, key=lambda name: (-held[name], name))[: most if len(held) <= most else most - 1]
    return lambda life: life.job.application if life.job.application in kept else OTHERS


def _spread(life: Life, edges: Sequence[float], into: list[float]) -> None:
    """Add the life's mean slots in each column."""
    if len(edges) < 2:
        return
    column = 0
    for (since, size), (until, _) in pairwise([*life.sizes, (edges[-1], 0)]):
        if not size or until <= since:
            continue
        while edges[column + 1] <= since:
            column += 1
        at = column
        while at < len(into) and edges[at] < until:
            overlap = min(until, edges[at + 1]) - max(since, edges[at])
            into[at] += size * overlap / (edges[at + 1] - edges[at])
            at += 1


def _area(edges: Sequence[float], values: Sequence[float]) -> float:
    return sum(value * (right - left) for value, (left, right) in zip(values, pairwise(edges), strict=True))


def _round_numbers(high: float, about: int) -> list[float]:
    """0, and its round multiples up to `high`."""
    steps = (base * 10.0**power for power in range(-3, 9) for base in (1, 2, 5))
    step = next(step for step in steps if high <= about * step)
    return [step * number for number in range(int(high / step + 1e-9) + 1)]


def _unit(seconds: float) -> tuple[float, str]:
    for scale, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 3 * scale:
            return scale, name
    return 1.0, "s"


def _span(seconds: float) -> str:
    scale, name = _unit(seconds)
    words = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds"}
    return f"{seconds / scale:.3g} {words[name]}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
