"""A job's training curve kept ready for drawing: each line of the metrics file is read once, few points are kept.

A picture of a training of a week must not read a week's file: `CurveShelf` keeps, for the jobs looked at last, where it
has read to and a summary of what it read. A summary holds at most `MOST` points, the smallest and the largest loss of
each stretch among them. A file that was cut (updates lost with all who knew them) is read anew. Blocks: call it in a
thread.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from edt_sdk.schemas.paths import JobPaths
from edt_server.tail import holds

MOST = 2000
MOST_SIZES = 400
_KEPT_JOBS = 64
_PIECE = 1 << 22
_PAUSE, _FEW = 10.0, 5
_FILE = re.compile(r"training-(\d+)\.metrics\.jsonl\Z")


class _Line(msgspec.Struct):
    """What is read of a line."""

    kind: str
    update: int
    time: float
    loss: float | None = None
    samples: int = 0
    world: int = 0
    epoch: int = 0


Point = TypeVar("Point", bound="TrainPoint | TestPoint")
_DECODER = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class TrainPoint:
    """One committed update: its number from 0, samples used up to its end, loss (None for no number), workers, time."""

    update: int
    samples: int
    loss: float | None
    world: int
    time: float


@dataclass(frozen=True, slots=True)
class TestPoint:
    """One validation, after that update."""

    __test__ = False  # not a class of tests

    update: int
    loss: float | None
    time: float


@dataclass(frozen=True, slots=True)
class Curve:
    """What is known of a job's last training.

    Attributes:
        training: its number, from 0.
        train: updates, thinned; the last one is always there.
        test: validations, thinned.
        sizes: the first update of each stretch with the same number of workers, thinned.
        updates: how many updates there were.
        speeds: workers → (samples, seconds) of the updates computed by so many, pauses left out.
    """

    training: int
    train: tuple[TrainPoint, ...] = ()
    test: tuple[TestPoint, ...] = ()
    sizes: tuple[TrainPoint, ...] = ()
    updates: int = 0
    speeds: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    def few(self, most: int) -> Curve:
        """The same with at most so many points of each kind."""
        return replace(self, train=fewest(self.train, most), test=fewest(self.test, most))


@dataclass(slots=True)
class _Reading:
    """How far a file was read, and what it told."""

    training: int
    offset: int = 0
    length: int = 0
    crc: int = 0
    samples: int = 0
    updates: int = 0
    train: list[TrainPoint] = field(default_factory=list)
    test: list[TestPoint] = field(default_factory=list)
    sizes: list[TrainPoint] = field(default_factory=list)
    last: TrainPoint | None = None
    speeds: dict[int, tuple[int, float, int]] = field(default_factory=dict)

    def take(self, line: _Line) -> None:
        if line.kind == "test":
            while self.test and self.test[-1].update >= line.update:
                self.test.pop()
            self.test.append(TestPoint(line.update, line.loss, line.time))
            if len(self.test) > 2 * MOST:
                self.test = thinned(self.test)
            return
        if self.last is not None and line.update <= self.last.update:
            return  # a file holds each update once; whoever wrote it again had lost it, and cut the file
        self.samples += line.samples
        self.updates += 1
        self._measure(line)
        self.last = TrainPoint(line.update, self.samples, line.loss, line.world, line.time)
        self.train.append(self.last)
        if not self.sizes or self.sizes[-1].world != line.world:
            self.sizes.append(self.last)
            if len(self.sizes) > 2 * MOST_SIZES:
                del self.sizes[1:-1:2]
        if len(self.train) > 2 * MOST:
            self.train = thinned(self.train)

    def _measure(self, line: _Line) -> None:
        before = self.last
        if before is None or before.world != line.world or line.time <= before.time:
            return
        seconds = line.time - before.time
        samples, so_far, number = self.speeds.get(line.world, (0, 0.0, 0))
        # A suspension, a recovery or a validation lies between two updates, and is no part of their speed.
        if number >= _FEW and seconds > _PAUSE * so_far / number:
            return
        self.speeds[line.world] = (samples + line.samples, so_far + seconds, number + 1)

    def curve(self) -> Curve:
        speeds = {world: (samples, seconds) for world, (samples, seconds, _) in self.speeds.items()}
        return Curve(self.training, tuple(self.train), tuple(self.test), tuple(self.sizes), self.updates, speeds)


@dataclass(slots=True)
class _Place:
    """One file's place on the shelf."""

    reading: _Reading | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class CurveShelf:
    """The curves of the jobs that were looked at last."""

    def __init__(self, most: int = _KEPT_JOBS) -> None:
        self._most = most
        self._readings: OrderedDict[Path, _Place] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, paths: JobPaths) -> Curve:
        """The curve of the job's last training, up to what is written now."""
        newest = max(_trainings(paths), default=None)
        if newest is None:
            return Curve(0)
        path = paths.metrics(newest)
        with self._lock:
            place = self._readings.setdefault(path, _Place())
            self._readings.move_to_end(path)
            while len(self._readings) > self._most:
                self._readings.popitem(last=False)
        with place.lock:  # whoever looks at another job does not wait for a long file
            reading = place.reading
            if reading is None or not holds(path, reading.offset, reading.length, reading.crc):
                reading = place.reading = _Reading(newest)
            _read_on(path, reading)
            return reading.curve()


def _trainings(paths: JobPaths) -> list[int]:
    matches = (_FILE.match(path.name) for path in paths.job_dir.glob("training-*.metrics.jsonl"))
    return [int(match[1]) for match in matches if match]


def _read_on(path: Path, reading: _Reading) -> None:
    """Take every whole line behind what was read."""
    with path.open("rb") as file:
        file.seek(reading.offset)
        rest = b""
        while piece := file.read(_PIECE):
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            for line in lines:
                reading.offset += len(line) + 1
                reading.length, reading.crc = len(line), zlib.crc32(line)
                try:
                    reading.take(_DECODER.decode(line))
                except msgspec.DecodeError:
                    continue  # a line torn by the death of its writer


def thinned(points: Sequence[Point]) -> list[Point]:
    """Half of the points: of every four neighbours those with the smallest and the largest loss; always the last."""
    kept: list[Point] = []
    for at in range(0, len(points), 4):
        group = points[at : at + 4]
        ends = (min(group, key=_height), max(group, key=_height))
        kept += [point for point in group if point is ends[0] or point is ends[1]]
    return kept if kept[-1] is points[-1] else [*kept, points[-1]]


def fewest(points: Sequence[Point], most: int) -> tuple[Point, ...]:
    """At most so many (≥ 4) of the points: the first, the last, and the extremes of the loss in equal stretches."""
    if len(points) <= most:
        return tuple(points)
    stretches = (most - 2) // 2
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        group = range(stretch * len(points) // stretches, (stretch + 1) * len(points) // stretches)
        kept |= {min(group, key=lambda at: _height(points[at])), max(group, key=lambda at: _height(points[at]))}
    return tuple(points[at] for at in sorted(kept))


def _height(point: TrainPoint | TestPoint) -> float:
    """The loss; one that is no number is what must be kept before all."""
    return float("-inf") if point.loss is None else point.loss
