"""Return the allocation of a run over time, in the form that `edt_sdk.pictures` draws. Pure.

There is one band per job where there are few jobs, else per application. However long the run, there are at most
`COLUMNS` columns, each the mean of its time. The last column ends with the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

from edt_sdk.pictures import allocation as pictured
from edt_sdk.pictures.allocation import AllocationChart, Band, draw_allocation
from edt_sdk.pictures.parts.look import Look
from edt_server.simulator.engine import Life, SimulatedRun
from edt_server.simulator.figures import slot_seconds

BANDS = 8
COLUMNS = pictured.MOST_CELLS // BANDS
OTHERS = "others"
WIDTH = 860


def allocation(run: SimulatedRun) -> AllocationChart:
    """Return the allocation in at most `COLUMNS` columns. It is exact where there are no more changes than that."""
    lives = [life for life in run.lives if life.sizes]
    times = sorted({time for life in lives for time, _ in life.sizes})
    # A long run has more changes than pixels. Equal steps keep the picture's size bounded.
    if len(times) > COLUMNS + 1:
        step = (times[-1] - times[0]) / COLUMNS
        times = [times[0] + step * number for number in range(COLUMNS)] + [times[-1]]
    grouped: dict[str, list[float]] = defaultdict(lambda: [0.0] * max(0, len(times) - 1))
    name = _naming(lives)
    for life in lives:
        _spread(life, times, grouped[name(life)])
    largest_first = sorted(grouped, key=lambda each: (each == OTHERS, -_area(times, grouped[each]), each))
    bands = (Band(pictured.OTHERS if each == OTHERS else each, each, tuple(grouped[each])) for each in largest_first)
    capacity = (run.slots,) * max(0, len(times) - 1)
    return AllocationChart(
        tuple(times), tuple(bands), capacity, clock=False, empty=f"No job held any of {run.slots} slots."
    )


def draw(held: AllocationChart) -> str:
    """Return the picture as a standalone SVG document."""
    return f"{draw_allocation(held, Look(width=WIDTH))}\n"


def _naming(lives: Sequence[Life]) -> Callable[[Life], str]:
    """Return how to name the band of a life: its job, or its application. The bands with the least work are others."""
    if len(lives) <= BANDS:
        return lambda life: life.job.name
    held: dict[str, float] = defaultdict(float)
    for life in lives:
        held[life.job.application] += slot_seconds(life)
    # One band stays free for the others.
    kept = sorted(held, key=lambda name: (-held[name], name))[: BANDS if len(held) <= BANDS else BANDS - 1]
    return lambda life: life.job.application if life.job.application in kept else OTHERS


def _spread(life: Life, edges: Sequence[float], into: list[float]) -> None:
    """Add the life's mean slots in each column."""
    if len(edges) < 2:
        return
    column = 0
    # A job without an end holds its last slots until the end of the picture.
    for (since, size), (until, _) in pairwise([*life.sizes, (edges[-1], 0)]):
        if not size or until <= since:
            continue
        # Sizes are in order of time, so that the search goes on from the last column: one pass in all.
        while edges[column + 1] <= since:
            column += 1
        at = column
        while at < len(into) and edges[at] < until:
            overlap = min(until, edges[at + 1]) - max(since, edges[at])
            into[at] += size * overlap / (edges[at + 1] - edges[at])
            at += 1


def _area(edges: Sequence[float], values: Sequence[float]) -> float:
    return sum(value * (right - left) for value, (left, right) in zip(values, pairwise(edges), strict=True))
