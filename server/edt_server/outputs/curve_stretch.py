"""Read a part of a training's curve again in detail, because the cache keeps few points.

Lines of a metrics file are in order of their updates, so that a binary search finds the first one, and the rest of the
file is not read. For a part with very many updates the cached points are used: reading it would take seconds, and a
picture has no room for more. Blocks: call it in a thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from edt_sdk.pictures.parts.extremes import Extremes
from edt_server.outputs.training_curve import DECODER, MOST, Curve, CurveLine, TrainPoint

MOST_UPDATES = 50_000
_NEAR = 1 << 16  # bytes below which reading on is faster than another step of the search


def detail(
    curve: Curve, file: Path, low: float, high: float, place: Callable[[TrainPoint], float]
) -> tuple[TrainPoint, ...]:
    """Return the updates with a `place` on the x axis from `low` to `high`, thinned, in order.

    Args:
        curve: the whole training, thinned.
        file: the metrics file of the training.
        low: the lower end on the x axis.
        high: the upper end.
        place: maps an update to the x axis. It is strictly increasing.
    """
    if not curve.train:
        return ()
    kept = tuple(point for point in curve.train if low <= place(point) <= high)
    # A line has only the samples of its own update. The sum starts at the last kept point before the part.
    before = next((point for point in reversed(curve.train) if place(point) < low), None)
    after = next((point for point in curve.train if place(point) > high), None)
    first = 0 if before is None else before.update + 1
    last = curve.train[-1].update if after is None else after.update
    # Nothing to gain where each update is kept already, and too slow where there are too many.
    if not len(kept) < last - first + 1 <= MOST_UPDATES:
        return kept
    samples = 0 if before is None else before.samples
    found: Extremes[TrainPoint] = Extremes(MOST)
    with contextlib.suppress(FileNotFoundError), file.open("rb") as opened:
        for line in _lines(opened, first):
            if line.update > last:
                break
            samples += line.samples
            point = TrainPoint(line.update, samples, line.loss, line.world, line.time)
            if low <= place(point) <= high and found.wants(line.update, line.loss):
                found.add(point)
    # The file may be gone or truncated since the curve was read. The cached points are the next best.
    return tuple(found.points()) or kept


def _lines(file: IO[bytes], first: int) -> Iterator[CurveLine]:
    """Iterate over the lines of updates from number `first` on."""
    file.seek(_begin(file, first))
    for text in file:
        line = _decoded(text)
        if line is not None and line.kind == "train" and line.update >= first:
            yield line


def _begin(file: IO[bytes], first: int) -> int:
    """Return the offset of a line at or before the line of update `first`."""
    low, high = 0, file.seek(0, 2)
    while high - low > _NEAR:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        # The middle is within a line, so that the search looks at the next whole line.
        at, line = file.tell(), _decoded(file.readline())
        # A damaged line counts as too far, because a search that starts too early only reads more.
        if at >= high or line is None or line.update >= first:
            high = middle
        else:
            low = at
    return low


def _decoded(text: bytes) -> CurveLine | None:
    """Decode a line. Returns None for an incomplete line of a writer that died."""
    try:
        return DECODER.decode(text)
    except msgspec.DecodeError:
        return None
