"""A cache of training curves: each line of a metrics file is read once, and few points are kept.

The picture of a week's training must not read a week's file each time. For the jobs that were shown last, `CurveShelf`
keeps the offset up to which it has read, and the smallest and the largest loss of each of at most `MOST` intervals. A
file that was truncated, because updates were lost with every process that knew them, is read again from its start.
Blocks: call it in a thread.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from edt_sdk.pictures.parts.extremes import Extremes, fewest, height
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.regular import open_regular
from edt_server.outputs.metrics import trainings
from edt_server.outputs.tail import holds

MOST = 1000
MOST_SIZES = 400
_KEPT_JOBS = 64
_PIECE = 1 << 20  # bytes a piece, because decoding holds the interpreter lock
_PAUSE, _FEW = 10.0, 5


class CurveLine(msgspec.Struct):
    """The fields of a line of the metrics file that are read, see docs/guide/results.md."""

    kind: str
    update: int
    time: float
    loss: float | None = None
    samples: int = 0
    world: int = 0
    epoch: int = 0
    drawn: bool = True


DECODER = msgspec.json.Decoder(CurveLine)


@dataclass(frozen=True, slots=True)
class TrainPoint:
    """One committed update: number from 0, samples used up to its end, loss (None if not a number), workers, time."""

    update: int
    samples: int
    loss: float | None
    world: int
    time: float


@dataclass(frozen=True, slots=True)
class TestPoint:
    """One validation, after the update with that number."""

    __test__ = False  # not a class of tests

    update: int
    loss: float | None
    time: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of a job's last training.

    Attributes:
        training: the number of the training, from 0.
        train: updates, thinned. The last update is always among them.
        test: validations, thinned.
        sizes: the first update of each stretch with the same number of workers, thinned.
        updates: the number of updates.
        speeds: number of workers → (samples, seconds) of the updates they computed, without pauses.
    """

    training: int
    train: tuple[TrainPoint, ...] = ()
    test: tuple[TestPoint, ...] = ()
    sizes: tuple[TrainPoint, ...] = ()
    updates: int = 0
    speeds: Mapping[int, tuple[int, float]] = field(default_factory=dict)

    def few(self, most: int) -> Curve:
        """Return the curve with at most `most` points of each kind."""
        return replace(self, train=fewest(self.train, most, height), test=fewest(self.test, most, height))


@dataclass(slots=True)
class _Reading:
    """The state of reading one file: the offset, and what was read up to it."""

    training: int
    offset: int = 0
    length: int = 0
    crc: int = 0
    samples: int = 0
    updates: int = 0
    train: Extremes[TrainPoint] = field(default_factory=lambda: Extremes(MOST))
    test: Extremes[TestPoint] = field(default_factory=lambda: Extremes(MOST))
    tested: int = -1
    sizes: list[TrainPoint] = field(default_factory=list)
    speeds: dict[int, tuple[int, float, int]] = field(default_factory=dict)
    before: CurveLine | None = None

    def take(self, line: CurveLine) -> None:
        if line.kind == "test":
            if line.drawn and line.update > self.tested:
                self.tested = line.update
                self.test.add(TestPoint(line.update, line.loss, line.time))
            return
        before, self.before = self.before, line
        if before is not None and line.update <= before.update:
            self.before = before
            return  # a file holds each update once: a writer that had lost an update has truncated the file first
        self.samples += line.samples
        self.updates += 1
        changed = before is None or before.world != line.world
        if before is not None and not changed:
            self._measure(line, line.time - before.time)
        if changed or self.train.wants(line.update, line.loss):
            self.train.add(point := self._point(line))
            if changed:
                self.sizes.append(point)
                if len(self.sizes) > 2 * MOST_SIZES:
                    # Bounded memory: every second change goes, but the first and the newest size stay.
                    del self.sizes[1:-1:2]

    def _point(self, line: CurveLine) -> TrainPoint:
        return TrainPoint(line.update, self.samples, line.loss, line.world, line.time)

    def _measure(self, line: CurveLine, seconds: float) -> None:
        samples, so_far, number = self.speeds.get(line.world, (0, 0.0, 0))
        # A long gap is a suspension, a recovery or a validation, and no part of the speed.
        if seconds > 0 and (number < _FEW or seconds <= _PAUSE * so_far / number):
            self.speeds[line.world] = (samples + line.samples, so_far + seconds, number + 1)

    def curve(self) -> Curve:
        train = list(self.train.points())
        if self.before is not None and train[-1].update != self.before.update:
            # The newest update is rarely an extreme, but the curve has to end with it.
            train.append(self._point(self.before))
        speeds = {world: (samples, seconds) for world, (samples, seconds, _) in self.speeds.items()}
        return Curve(self.training, tuple(train), tuple(self.test.points()), tuple(self.sizes), self.updates, speeds)


@dataclass(slots=True)
class _Place:
    """The cache entry of a metrics file."""

    reading: _Reading | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class CurveShelf:
    """A cache of the curves of the jobs that were shown last."""

    def __init__(self, most: int = _KEPT_JOBS) -> None:
        self._most = most
        self._readings: OrderedDict[Path, _Place] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, paths: JobPaths) -> Curve:
        """Return the curve of the job's last training, up to what is written now."""
        newest = max(trainings(paths), default=None)
        if newest is None:
            return Curve(0)
        path = paths.metrics(newest)
        with self._lock:
            place = self._readings.setdefault(path, _Place())
            self._readings.move_to_end(path)
            while len(self._readings) > self._most:
                # A thread that still reads the dropped entry finishes on its own object. The next reader of that job
                # starts again from the beginning of the file.
                self._readings.popitem(last=False)
        with place.lock:  # one lock a file, so that a long file delays no reader of another job
            reading = place.reading
            if reading is None or not holds(path, reading.offset, reading.length, reading.crc):
                # The file was truncated or replaced: what was read of it may describe lost updates.
                reading = place.reading = _Reading(newest)
            with contextlib.suppress(FileNotFoundError):  # the job is being deleted
                _read_on(path, reading)
            return reading.curve()


def _read_on(path: Path, reading: _Reading) -> None:
    """Read every complete line after the offset."""
    with open_regular(path) as file:
        file.seek(reading.offset)
        rest = b""
        while piece := file.read(_PIECE):
            # The offset stops at the last line break: the writer may be in the middle of the next line.
            whole, end, rest = (rest + piece).rpartition(b"\n")
            if not end:
                continue
            last = whole[whole.rfind(b"\n") + 1 :]
            reading.offset += len(whole) + 1
            reading.length, reading.crc = len(last), zlib.crc32(last)
            for line in _lines(whole):
                reading.take(line)


def _lines(text: bytes) -> Iterator[CurveLine]:
    """Decode the lines in one call, which is several times as fast, and one by one if a line is incomplete."""
    try:
        # It returns a whole list, so that a failure has yielded nothing yet and no line counts twice.
        yield from DECODER.decode_lines(text)
    except msgspec.DecodeError:
        for line in text.split(b"\n"):
            with contextlib.suppress(msgspec.DecodeError):  # incomplete because its writer died
                yield DECODER.decode(line)
