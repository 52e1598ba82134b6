"""Metrics of a job's trainings, read from what rank 0 writes, down-sampled for a picture.

`training-<k>.metrics.jsonl` holds one line an update and one a validation (see docs/architecture.md). Every point
given out carries `"training": k`; the per-shard figures stay in the file, since they grow with V and no picture draws
them.

`thin` is pure; `MetricsReader` only opens files. It blocks: call it in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.paths import JobPaths
from edt_server.cursor import from_cursor, to_cursor
from edt_server.tail import read_tail

DEFAULT_POINTS = 500
_FILE = re.compile(r"training-(\d+)\.metrics\.jsonl\Z")
_KEY = re.compile(r"\d+\Z")
_LINES = 100_000
Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MetricsBatch:
    """New points in order of their files, a cursor behind each and behind all, and whether there will be no more."""

    points: tuple[Point, ...]
    cursors: tuple[str, ...]
    next: str
    done: bool

    def of_kind(self, kind: str) -> list[Point]:
        """The "train" or the "test" points."""
        return [point for point in self.points if point.get("kind") == kind]


class MetricsReader:
    """Reads a job's metrics forward; `after` is a cursor of an earlier answer. InvalidRequest for a bad one."""

    def __init__(self, paths: JobPaths, *, after: str = "") -> None:
        self._paths = paths
        self._offsets = from_cursor(after)
        if not all(_KEY.match(key) for key in self._offsets):
            raise InvalidRequest(f"{after!r} is not a cursor of metrics.", field="after")

    def read(self, *, final: bool = False) -> MetricsBatch:
        """All points written since; `final` says that no process of the job writes any more."""
        points: list[Point] = []
        cursors: list[str] = []
        more = False
        for training in self._trainings():
            key = str(training)
            tail = read_tail(self._paths.metrics(training), self._offsets.get(key, 0), max_lines=_LINES, final=final)
            more = more or tail.more
            for line, end in tail.lines:
                self._offsets[key] = end
                point = _parse(line, training)
                if point is not None:
                    points.append(point)
                    cursors.append(to_cursor(self._offsets))
        return MetricsBatch(tuple(points), tuple(cursors), to_cursor(self._offsets), final and not more)

    def read_all(self, *, final: bool = False) -> MetricsBatch:
        """As `read`, but to the end of what is there."""
        batch = self.read(final=final)
        points, cursors = list(batch.points), list(batch.cursors)
        while batch.points and not batch.done:
            batch = self.read(final=final)
            points += batch.points
            cursors += batch.cursors
        return MetricsBatch(tuple(points), tuple(cursors), batch.next, batch.done)

    def _trainings(self) -> list[int]:
        matches = (_FILE.match(path.name) for path in self._paths.job_dir.glob("training-*.metrics.jsonl"))
        return sorted(int(match[1]) for match in matches if match)


def _parse(line: bytes, training: int) -> Point | None:
    try:
        point = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:  # a line torn by the death of its writer
        return None
    point.pop("shards", None)
    return {"training": training, **point}


def thin(points: Sequence[Point], count: int, value: str = "loss") -> list[Point]:
    """At most `count` (≥ 4) of the points: the first, the last, and the extremes of `value` in equal stretches.

    So no spike disappears from the picture, however long the training: the largest and the smallest value of all are
    always among them. Points without the value count as smallest.
    """
    if len(points) <= count:
        return list(points)
    stretches = (count - 2) // 2
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        first, last = stretch * len(points) // stretches, (stretch + 1) * len(points) // stretches
        kept.add(min(range(first, last), key=lambda i: _number(points[i], value)))
        kept.add(max(range(first, last), key=lambda i: _number(points[i], value)))
    return [points[i] for i in sorted(kept)]


def _number(point: Point, value: str) -> float:
    number = point.get(value)
    return float(number) if isinstance(number, int | float) and number == number else float("-inf")
