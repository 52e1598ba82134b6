"""The allocation over time: the slots of each job, stacked as steps, one colour a job.

A dashed line is the capacity. An emphasised job has its full colour and the others are pale. Marks below the areas show
when and why its slots changed. A hatched part has to be given back and is still held.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from edt_sdk.pictures.parts import scales
from edt_sdk.pictures.parts.colours import Colours, colours, weave_defs
from edt_sdk.pictures.parts.lettering import shortened, width_of
from edt_sdk.pictures.parts.look import OTHERS_COLOUR, Look, on_colour
from edt_sdk.pictures.parts.marks import Mark, drawn, entries, gathered
from edt_sdk.pictures.parts.paper import SMALL, document, hatch, legend, line, notice, num, tag, told, words
from edt_sdk.pictures.parts.scales import Frame, bounded, time_axis, whole_ticks

OTHERS = ""  # the id of the band of all jobs without a band of their own
_PALE = "0.22"
_LEFT = 44
_NOTE, _NOTE_ROWS = 15.0, 2
_SHORTEST = 10.0  # seconds
MOST_CELLS, MOST_BANDS = 1200, 24  # columns × bands
_MOST_SLOTS = 1e9


@dataclass(frozen=True, slots=True)
class Band:
    """The slots in each column that a job holds, or jobs put together (`OTHERS`).

    `leaving` counts the slots among these that it has to give back, and is () if there never were any.
    """

    job: str
    name: str
    slots: tuple[float, ...]
    leaving: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationChart:
    """The data of the picture.

    Attributes:
        edges: column i lies between edges i and i + 1, in seconds since the epoch, or since a start (`clock` False).
        bands: the jobs, the lowest band first.
        capacity: slots of the machine in each column.
        marks: events of the emphasised job.
        mine: the job that is emphasised, "" for none.
        clock: True for times of day.
        note: a sentence below the picture, such as how many changes were left out.
        empty: the sentence for a picture without any column.
        shortest: the smallest width in seconds. A window that a person chose may be shorter.
        brief: True for a small picture: its legend has only the jobs that hold slots at the end, and it has no note.
    """

    edges: tuple[float, ...]
    bands: tuple[Band, ...]
    capacity: tuple[int, ...]
    marks: tuple[Mark, ...] = ()
    mine: str = ""
    clock: bool = True
    note: str = ""
    empty: str = "Nothing has held a slot yet: the picture begins with the first job that starts."
    shortest: float = _SHORTEST
    brief: bool = False

    @property
    def columns(self) -> int:
        """The number of columns."""
        return max(0, len(self.edges) - 1)

    def says(self) -> str:
        """Return the picture as one sentence."""
        total = sum(_area(self, band) for band in self.bands)
        seconds = self.edges[-1] - self.edges[0] if self.columns else 0.0
        if not total or seconds <= 0:
            if not self.columns or not any(self.capacity):
                return self.empty
            return f"No job held any of {_slots(max(self.capacity))} in this time."
        most = max(self.capacity)
        mine = next((band for band in self.bands if band.job == self.mine), None) if self.mine else None
        if mine is not None:
            now, mean = mine.slots[-1], _area(self, mine) / seconds
            return (
                f"{mine.name} held {mean:.3g} of {_slots(most)} on average over {scales.span(seconds)}, "
                f"{now:.3g} at the end."
            )
        listed = sorted(self.bands, key=lambda band: -_area(self, band))[:5]
        shares = ", ".join(f"{band.name} {100 * _area(self, band) / total:.0f} %" for band in listed)
        mean = total / seconds
        return f"Slots held over {scales.span(seconds)}: {mean:.3g} of {most} on average; of these {shares}."


def draw_allocation(held: AllocationChart, look: Look | None = None) -> str:
    """Draw the picture as an SVG document."""
    look = look or Look()
    held = _sound(held)
    if not held.columns or not any(map(any, (band.slots for band in held.bands))):
        return notice(look, held.says())
    ink = look.ink
    dyes = colours(band.job for band in held.bands)
    heights = map(sum, zip(*(band.slots for band in held.bands), strict=True))
    most = max([1.0, *map(float, held.capacity), *heights])
    tops, rows = legend(look, _LEFT, 4, _legend_entries(held, dyes, look))
    said = [mark for mark in held.marks if mark.kind == "note"]
    top = rows + 20 + (_NOTE * _NOTE_ROWS if said else 0)
    tall = look.height(0.32, 150, 340)
    end = held.edges[-1]
    frame = Frame(_LEFT, top, look.width - 8, top + tall, min(held.edges[0], end - held.shortest), end, 0, most)
    parts = scales.y_axis(frame, look, whole_ticks(most, min(6, max(2, int(most)))))
    parts += _areas(held, dyes, frame, look)
    parts += _capacity(held, frame, look)
    parts += _notes(said, frame, look)
    happened = [mark for mark in held.marks if mark.kind != "note"]
    lane = 16 if happened else 0
    for mark in gathered(happened, frame.x):
        x = frame.x(mark.at)
        parts.append(line(x, frame.top, x, frame.bottom + 4, ink.text, opacity="0.3"))
        parts.append(drawn(mark, x, frame.bottom + 10, ink))
    parts += tops
    axis = Frame(frame.left, top, frame.right, frame.bottom + lane, frame.x0, frame.x1, 0, most)
    parts += time_axis(axis, look, clock=held.clock)
    if lane:
        parts.append(line(frame.left, frame.bottom, frame.right, frame.bottom, ink.line))
    bottom = axis.bottom + 24
    if held.note and not held.brief:
        parts.append(words(_LEFT, bottom + 10, shortened(held.note, look.width - _LEFT - 8, SMALL), ink.soft))
        bottom += 16
    return document(
        look, bottom, held.says(), parts, defs=hatch("leaving") + weave_defs(dyes.over.values()), across=frame.across
    )


def _notes(notes: Sequence[Mark], frame: Frame, look: Look) -> Iterator[str]:
    """Place labels above the areas, each in the first row with room. A label without room is only a tooltip."""
    ends = [-math.inf] * _NOTE_ROWS
    for mark in sorted(notes, key=lambda each: each.at):
        x, wide = frame.x(mark.at), width_of(mark.text, SMALL) + 6
        flag = line(x, frame.top, x, frame.bottom, look.ink.text)
        # Labels come from left to right, so that the end of the last label of each row is enough to find room.
        row = next((at for at, end in enumerate(ends) if end + 4 < x), None)
        side = "end" if x + wide > look.width - 2 else "start"
        if row is None or (side == "end" and ends[row] + 4 > x - wide):
            yield told(flag, mark.text)
            continue
        ends[row] = x if side == "end" else x + wide
        y = frame.top - 20 - _NOTE * row
        flag += line(x, y - 9, x, frame.top, look.ink.text)
        yield told(
            flag + words(x + (4 if side == "start" else -4), y, mark.text, look.ink.soft, anchor=side), mark.text
        )


def _sound(held: AllocationChart) -> AllocationChart:
    """Drop columns without a width and slots that are not numbers, and reduce both to what can be seen."""
    # Only NaN is unlike itself. With an edge lost, values would stand in the wrong columns, so that nothing is drawn.
    edges = [bounded(edge) for edge in held.edges if edge == edge]
    if len(edges) < len(held.edges):
        return replace(held, edges=(), bands=(), capacity=())
    wide = [at for at, (left, right) in enumerate(pairwise(edges)) if right > left]
    most = MOST_CELLS // max(4, min(len(held.bands), MOST_BANDS))
    # Rounded up: the picture's size stays bounded, however many changes there were (028).
    kept = wide[:: -(-len(wide) // most)] if wide else []
    if not kept or edges != sorted(edges):
        return replace(held, edges=(), bands=(), capacity=())
    bands = tuple(
        replace(band, slots=_counts(band.slots, kept), leaving=_counts(band.leaving, kept) if band.leaving else ())
        for band in held.bands
    )
    # More bands than this cannot be distinguished. The others become one grey band with their number (028).
    shown, rest = bands[:MOST_BANDS], bands[MOST_BANDS:]
    if rest:
        together = tuple(sum(column) for column in zip(*(band.slots for band in rest), strict=True))
        shown = (*shown, Band(OTHERS, f"{len(rest)} others", together))
    return replace(
        held,
        edges=(*(edges[at] for at in kept), edges[wide[-1] + 1]),
        bands=shown,
        capacity=tuple(int(count) for count in _counts(held.capacity, kept)),
        marks=tuple(mark for mark in held.marks if edges[0] <= mark.at <= edges[-1]),
    )


def _counts(values: Sequence[float], kept: Sequence[int]) -> tuple[float, ...]:
    return tuple(min(_MOST_SLOTS, max(0.0, values[at])) if values[at] == values[at] else 0.0 for at in kept)


def _legend_entries(held: AllocationChart, dyes: Colours, look: Look) -> list[tuple[str, str]]:
    room = min(220.0, look.width - _LEFT - 40)
    found = []
    # The names of ended jobs would take the room of the list below a small picture. Their areas keep their titles.
    bands = [band for band in held.bands if band.slots[-1]] if held.brief else held.bands
    for band in bands:
        swatch = _swatch(dyes.of(band.job), _opacity(held, band), dyes.over.get(band.job))
        found.append((swatch, shortened(band.name, room, SMALL) or band.job))
    if any(band.leaving[-1] if held.brief else any(band.leaving) for band in bands if band.leaving):
        found.append((_swatch(OTHERS_COLOUR) + _swatch("url(#leaving)"), "being given back"))
    return [*found, *entries([mark for mark in held.marks if mark.kind != "note"], look.ink, "slots")]


def _swatch(fill: str, opacity: str | None = None, over: str | None = None) -> str:
    box = tag("rect", x=-6, y=-6, width=12, height=12, rx=2, fill=fill, fill_opacity=opacity)
    return box + (_swatch(over) if over else "")


def _opacity(held: AllocationChart, band: Band) -> str | None:
    return _PALE if held.mine and band.job != held.mine else None


def _areas(held: AllocationChart, dyes: Colours, frame: Frame, look: Look) -> Iterator[str]:
    """Draw one shape a band, along the top and back along the bottom, then its hatched part and its name."""
    below = [0.0] * held.columns
    names: list[str] = []
    for band in held.bands:
        above = [low + slots for low, slots in zip(below, band.slots, strict=True)]
        path = _stepped(held.edges, below, above, frame)
        if path:
            fill, opacity = dyes.of(band.job), _opacity(held, band)
            stroke = fill if opacity else look.ink.edge
            shape = tag("path", d=path, fill=fill, fill_opacity=opacity, stroke=stroke, stroke_width=0.7)
            if band.job in dyes.over:
                shape += tag("path", d=path, fill=dyes.over[band.job])
            yield told(shape, f"{band.name}: {_range(band.slots)}")
            names += _name(band, below, above, frame, held, dyes, look)
        if any(band.leaving):
            from_ = [max(0.0, high - each) for high, each in zip(above, band.leaving, strict=True)]
            yield tag("path", d=_stepped(held.edges, from_, above, frame), fill="url(#leaving)")
        below = above
    # After all areas, because a later area would cover a name.
    yield from names


def _stepped(edges: Sequence[float], low: Sequence[float], high: Sequence[float], frame: Frame) -> str:
    """Return closed shapes between two rows of steps, one for each interval in which they differ."""
    path: list[str] = []
    column = 0
    while column < len(low):
        if high[column] <= low[column]:
            column += 1
            continue
        first = column
        while column < len(low) and high[column] > low[column]:
            column += 1
        path.append(_shape(edges, low, high, first, column, frame))
    return "".join(path)


def _shape(
    edges: Sequence[float], low: Sequence[float], high: Sequence[float], first: int, last: int, frame: Frame
) -> str:
    there = _steps([(edges[at + 1], high[at]) for at in range(first, last)], frame)
    back = _steps([(edges[at], low[at]) for at in range(last - 1, first - 1, -1)], frame)
    return f"M{num(frame.x(edges[first]))} {num(frame.y(low[first]))}{there}{back}Z"


def _steps(ends: Sequence[tuple[float, float]], frame: Frame) -> str:
    """Return a path of steps: vertical to each level, then across. Equal levels are one step."""
    path: list[str] = []
    # NaN equals no level, so that the last step is always drawn.
    for (end, level), after in pairwise([*ends, (math.nan, math.nan)]):
        if after[1] == level:
            continue
        path.append(f"V{num(frame.y(level))}H{num(frame.x(end))}")
    return "".join(path)


def _name(
    band: Band,
    below: Sequence[float],
    above: Sequence[float],
    frame: Frame,
    held: AllocationChart,
    dyes: Colours,
    look: Look,
) -> list[str]:
    """Write the band's name where the band is widest, if there is room."""
    best = (0.0, 0, 0)
    column = 0
    while column < held.columns:
        first = column
        # Only columns with equal edges count: a name across a step would leave its area.
        while column < held.columns and (below[column], above[column]) == (below[first], above[first]):
            column += 1
        if above[first] > below[first]:
            best = max(best, (frame.x(held.edges[column]) - frame.x(held.edges[first]), first, column))
    room, first, last = best
    if not room or frame.y(below[first]) - frame.y(above[first]) < 16:
        return []
    text = shortened(band.name, room - 12, SMALL * 1.1)
    if len(text) < min(len(band.name), 9) or width_of(text, SMALL) > room:
        return []
    x = (frame.x(held.edges[first]) + frame.x(held.edges[last])) / 2
    y = (frame.y(below[first]) + frame.y(above[first])) / 2 + 4
    pale = held.mine and band.job != held.mine
    fill = look.ink.text if pale else on_colour(dyes.of(band.job))
    return [words(x, y, text, fill, anchor="middle", bold=not pale)]


def _capacity(held: AllocationChart, frame: Frame, look: Look) -> Iterator[str]:
    path = f"M{num(frame.left)} {num(frame.y(held.capacity[0]))}"
    path += _steps([(held.edges[at + 1], float(held.capacity[at])) for at in range(held.columns)], frame)
    yield told(
        tag("path", d=path, fill="none", stroke=look.ink.text, stroke_width=1.5, stroke_dasharray="6 4"),
        f"slots there are: {_range(held.capacity)}",
    )
    y = frame.y(held.capacity[-1]) - 5
    yield words(frame.right, y, _slots(held.capacity[-1]), look.ink.text, anchor="end")


def _range(slots: Sequence[float]) -> str:
    low, high = min(slots), max(slots)
    return _slots(high) if low == high else f"{low:.3g} to {_slots(high)}"


def _slots(number: float) -> str:
    return f"{number:.3g} slot{'' if number == 1 else 's'}"


def _area(held: AllocationChart, band: Band) -> float:
    return sum(slots * (right - left) for slots, (left, right) in zip(band.slots, pairwise(held.edges), strict=True))
