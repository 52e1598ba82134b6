"""Read the metrics of a job's trainings from the files of rank 0, thinned for a picture.

`training-<k>.metrics.jsonl` holds one line per update and one per validation (docs/guide/results.md). Every point that
is returned carries `"training": k`. The per-shard figures stay in the file, since they grow with V and no picture draws
them.

A file may be cut and grow again when updates were lost with all their members (docs/decisions/010-recovery.md). A
cursor therefore holds, next to each offset, the checksum of the line before it and the last point that was returned,
so that a reader gets no update and no validation twice.

`thin` is pure. `MetricsReader` only opens files. It blocks, so call it in a thread.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.pictures.parts.extremes import fewest
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular
from edt_server.outputs.tail import MAX_LINE, from_cursor, holds, read_tail, to_cursor

DEFAULT_POINTS = 500
_FILE = re.compile(r"training-(\d+)\.metrics\.jsonl\Z")
# By training: the offset, and behind a letter: length and checksum of the line before it, updates and epochs given out.
_KEY = re.compile(r"\d+[ncue]?\Z")
_LINES = 100_000
_TEST = b'{"kind":"test"'  # the recorder's first bytes of a validation
Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MetricsBatch:
    """The new points in the order of their files, with a cursor after each and after all."""

    points: tuple[Point, ...]
    cursors: tuple[str, ...]
    next: str
    done: bool

    def of_kind(self, kind: str) -> list[Point]:
        """Return the "train" or the "test" points."""
        return [point for point in self.points if point.get("kind") == kind]


class MetricsReader:
    """Reads a job's metrics forward. `after` is a cursor of an earlier answer. InvalidRequest for an invalid cursor."""

    def __init__(self, paths: JobPaths, *, after: str = "") -> None:
        self._paths = paths
        self._offsets = from_cursor(after)
        if not all(_KEY.match(key) for key in self._offsets):
            raise InvalidRequest(f"{after!r} is not a cursor of metrics.", field="after")

    def read(self, *, final: bool = False) -> MetricsBatch:
        """Return all points written since the cursor. `final` means that no process of the job writes any more."""
        points: list[Point] = []
        cursors: list[str] = []
        more = False
        for training in trainings(self._paths):
            path = self._paths.metrics(training)
            tail = read_tail(path, self._start(path, training), max_lines=_LINES, final=final)
            more = more or tail.more
            for line, end in tail.lines:
                self._step(training, line, end)
                point = _parse(line, training)
                if point is not None and self._is_new(point):
                    points.append(point)
                    cursors.append(to_cursor(self._offsets))
        return MetricsBatch(tuple(points), tuple(cursors), to_cursor(self._offsets), final and not more)

    def read_all(self, *, final: bool = False) -> MetricsBatch:
        """Read like `read`, but to the end of the files."""
        batch = self.read(final=final)
        points, cursors = list(batch.points), list(batch.cursors)
        while batch.points and not batch.done:
            batch = self.read(final=final)
            points += batch.points
            cursors += batch.cursors
        return MetricsBatch(tuple(points), tuple(cursors), batch.next, batch.done)

    def _start(self, path: Path, training: int) -> int:
        """Return where to go on: after the last line read, or at the start when that line is another one now."""
        offset = self._offsets.get(f"{training}", 0)
        length = self._offsets.get(f"{training}n", 0)
        crc = self._offsets.get(f"{training}c", 0)
        # The file may have been cut and have grown again, so the offset alone proves nothing (docs/decisions/010).
        return offset if holds(path, offset, length, crc) else 0

    def _step(self, training: int, line: bytes, end: int) -> None:
        self._offsets.update({f"{training}": end, f"{training}n": len(line), f"{training}c": zlib.crc32(line)})

    def _is_new(self, point: Point) -> bool:
        """Return whether a point is beyond the points returned so far, and count it as returned if it is."""
        is_test = point.get("kind") == "test"
        number, key = point.get("epoch" if is_test else "update"), f"{point['training']}{'e' if is_test else 'u'}"
        if is_test and point.get("number") is not None:
            number = point["number"]  # one of several in an epoch
        if not isinstance(number, int):
            return True
        # Lost updates are recomputed and written again with the same bits, and a reader has them already
        # (docs/decisions/010).
        if number < self._offsets.get(key, 0):
            return False
        self._offsets[key] = number + 1
        return True


def validations(paths: JobPaths) -> list[Point]:
    """Return the validations of all trainings in order, without the work of decoding the lines of updates. Blocks."""
    found: list[Point] = []
    for training in trainings(paths):
        with contextlib.suppress(FileNotFoundError), open_regular(paths.metrics(training)) as file:
            while line := file.readline(MAX_LINE):
                if line.startswith(_TEST) and (point := _parse(line, training)) is not None:
                    found.append(point)
    return found


def trainings(paths: JobPaths) -> list[int]:
    """Return the numbers of the job's trainings that have a metrics file."""
    matches = (_FILE.match(path.name) for path in paths.job_dir.glob("training-*.metrics.jsonl"))
    return sorted(int(match[1]) for match in matches if match)


def _parse(line: bytes, training: int) -> Point | None:
    try:
        point = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:  # a line torn by the death of its writer
        return None
    # The figures per shard grow with V, and no picture draws them.
    point.pop("shards", None)
    return {"training": training, **point}


def thin(points: Sequence[Point], count: int) -> tuple[Point, ...]:
    """Return at most `count` (≥ 4) of the points, including the extremes of the loss."""
    return fewest(points, count, _loss)


def _loss(point: Point) -> float:
    """Return the loss of a point. A point without a loss counts as smallest."""
    number = point.get("loss")
    return float(number) if isinstance(number, int | float) and number == number else float("-inf")
