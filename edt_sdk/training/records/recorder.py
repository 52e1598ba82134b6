"""Rank 0's two logs of a training: who computed what, and how good it was.

`training-<k>.commits.jsonl` proves that every update used every sample once; `training-<k>.metrics.jsonl` feeds the
loggers, the card and the monitor. The next rank 0 goes on where the last one stopped (`jsonl.py`), or takes back what
is lost with everybody who knew it (`Recorder.rewind`). Numbers that JSON has no word for (NaN, infinities) become
null. The formats are in docs/architecture.md; fields beyond those are additions.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

import msgspec

from edt_sdk.training.records.jsonl import JsonLines, backwards, cut_torn_line, truncate


class ShardLine(msgspec.Struct, frozen=True, kw_only=True):
    """One shard of a committed update. `indices` of the samples in the order their `__getitem__` was called."""

    shard: int
    pid: int
    worker: int
    indices: tuple[int, ...]


class CommitLine(msgspec.Struct, frozen=True, kw_only=True):
    """One committed update. `time` in seconds since the epoch."""

    update: int
    epoch: int
    generation: int
    world: int
    time: float
    shards: tuple[ShardLine, ...]


class TrainLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="train"):
    """Metrics of one update: means over its samples.

    Attributes:
        shards: (mean loss, accuracy, samples) of each of the V shards; (None, None, 0) for an empty one.
        workers: who computed each shard.
        updates_per_epoch: lets a reader see the end of an epoch.
        metrics: means of the user's own metrics by name.
    """

    update: int
    epoch: int
    samples: int
    loss: float | None
    accuracy: float | None
    world: int
    time: float
    shards: tuple[tuple[float | None, float | None, int], ...]
    workers: tuple[int, ...] = ()
    updates_per_epoch: int = 0
    metrics: dict[str, float | None] = {}


class TestLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="test"):
    """Metrics of one validation: means over the test set. `update` is the last one committed before it."""

    __test__: ClassVar[bool] = False  # not a test of pytest's

    epoch: int
    update: int
    loss: float | None
    accuracy: float | None
    time: float
    world: int = 0
    metrics: dict[str, float | None] = {}


MetricLine = TrainLine | TestLine

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[MetricLine] = msgspec.json.Decoder(MetricLine)
_commits: msgspec.json.Decoder[CommitLine] = msgspec.json.Decoder(CommitLine)
_TEST = b'{"kind":"test"'
# Offset behind the last line, its length and checksum, last update, last validation's epoch.
_CURSOR = struct.Struct("<QQQqq")


class Recorder:
    """Appends to both files; they are created (0600) with the first line. One member at a time has one in use.

    Args:
        commits, metrics: the files.
        discarded: where lines of lost updates go; None loses them.
    """

    def __init__(self, commits: Path, metrics: Path, *, discarded: Path | None = None) -> None:
        self._paths = commits, metrics
        self._discarded = discarded
        self._commits = JsonLines(commits)
        self._metrics = JsonLines(metrics)
        self._measured: Delivered | None = None

    def commit(self, line: CommitLine) -> None:
        """Record one update."""
        self._commits.append(_encoder.encode(line) + b"\n")

    def metric(self, line: MetricLine) -> None:
        """Record metrics of an update or of a validation; one that is in the file already is not written again.

        (A rank 0 may die between a line and the moment the others learn of it.)
        """
        if self._measured is None:
            self._measured = _last_measured(self._paths[1])
        if self._measured.has(line):
            return
        self._metrics.append(_encoder.encode(line) + b"\n")
        self._measured = self._measured.after(line)

    def next_update(self) -> int:
        """The number of the update that the commit log's next line is for: one above its last line's, 0 without any.

        A last line that was torn by the death of its writer is cut off.
        """
        cut_torn_line(self._paths[0])
        for _, line in backwards(self._paths[0]):
            return _commits.decode(line).update + 1
        return 0

    def rewind(self, updates: int) -> None:
        """Back to where `updates` updates are committed: what the files say about later ones is taken out of them.

        Lines of the commit log move to the file of discarded ones, on disk there before they are gone here, and each
        (update, generation) once, however often this is interrupted. Metrics of those updates, and of validations
        behind them, are removed. One that follows directly on update `updates` − 1 stays: its repetition is not
        recorded again.
        """
        self.close()
        commits, metrics = self._paths
        cut_torn_line(commits)
        lost: list[CommitLine] = []
        cut = 0
        for offset, data in backwards(commits):
            line = _commits.decode(data)
            if line.update < updates:
                cut = offset + len(data) + 1
                break
            lost.append(line)
        if lost:
            self._discard(lost[::-1])
            truncate(commits, cut)
        cut_torn_line(metrics)
        truncate(metrics, _end_of_metrics(metrics, updates))

    def close(self) -> None:
        """Close both files; the next line opens them again."""
        self._commits.close()
        self._metrics.close()
        self._measured = None

    def _discard(self, lines: list[CommitLine]) -> None:
        if self._discarded is None:
            return
        # Only now: a torn line must not count as there.
        cut_torn_line(self._discarded)
        there = {(line.update, line.generation) for line in _all_commits(self._discarded)}
        new = [line for line in lines if (line.update, line.generation) not in there]
        target = JsonLines(self._discarded)
        try:
            for line in new:
                target.append(_encoder.encode(line) + b"\n")
            target.sync()
        finally:
            target.close()


def epoch_behind(line: MetricLine) -> int:
    """The epoch of the update that follows a line, from 0."""
    closes = isinstance(line, TestLine) or (line.update + 1) % max(line.updates_per_epoch, 1) == 0
    return line.epoch + 1 if closes else line.epoch


@dataclass(frozen=True, slots=True)
class Delivered:
    """How far a metrics file goes, or was read: the number of the last update and the epoch of the last validation.

    Both only grow, whatever is computed twice; −1 for none.
    """

    update: int = -1
    epoch: int = -1

    def has(self, line: MetricLine) -> bool:
        """Whether a line is not new."""
        return line.update <= self.update if isinstance(line, TrainLine) else line.epoch <= self.epoch

    def after(self, line: MetricLine) -> Delivered:
        """With one line more."""
        if isinstance(line, TrainLine):
            return Delivered(line.update, self.epoch)
        return Delivered(self.update, line.epoch)


def _all_commits(path: Path) -> list[CommitLine]:
    return [_commits.decode(line) for _, line in backwards(path)]


def _last_measured(path: Path) -> Delivered:
    cut_torn_line(path)
    found = Delivered()
    for _, data in backwards(path):
        is_test = data.startswith(_TEST)
        # Decoding each line would take long where nothing is ever validated.
        if found.epoch < 0 if is_test else found.update < 0:
            found = found.after(_decoder.decode(data))
        if found.update >= 0 and found.epoch >= 0:
            break
    return found


def _end_of_metrics(path: Path, updates: int) -> int:
    """Where the lines end that are true when `updates` updates are committed."""
    for offset, data in backwards(path):
        if _decoder.decode(data).update < updates:
            return offset + len(data) + 1
    return 0


class MetricsFollower:
    """Reads a metrics file while it grows: each update and each validation once and in order.

    The file may be cut and grow again (`Recorder.rewind`): what is computed a second time is passed over.

    Args:
        path: the file.
        delivered: a file that remembers how far lines were handed out, so that another reader goes on there; None
            begins at the first line. A line counts when the next one is asked for.
    """

    def __init__(self, path: Path, *, delivered: Path | None = None) -> None:
        self._path = path
        self._memory = delivered
        self._place = _Place()
        self._done = Delivered()
        if delivered is not None:
            self._place, self._done = _remembered(delivered)
        self._before = self._done

    def read(self) -> Iterator[MetricLine]:
        """The lines that are new since the last call."""
        try:
            with self._path.open("rb") as file:
                self._place = self._place.checked(file)
                file.seek(self._place.offset)
                data = file.read()
        except FileNotFoundError:
            return
        for text in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self._place = self._place.behind(text)
            line = _line(text)
            if line is None or self._done.has(line):
                continue
            yield line
            self._done = self._done.after(line)
            if self._memory is not None:
                _remember(self._memory, self._place, self._done)

    def delivered_before(self) -> Iterator[MetricLine]:
        """The lines that earlier readers with the same `delivered` handed out, for sums that died with them."""
        seen = Delivered()
        if self._before == seen:
            return
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            for text in file:
                line = _line(text)
                if line is not None and self._before.has(line) and not seen.has(line):
                    seen = seen.after(line)
                    yield line


@dataclass(frozen=True, slots=True)
class _Place:
    """An offset behind a line of `length` bytes with checksum `crc`; by these one sees that the line is another now."""

    offset: int = 0
    length: int = 0
    crc: int = 0

    def checked(self, file: BinaryIO) -> _Place:
        """This place, or the beginning when the line before it is not the one that was read there."""
        if self.offset:
            file.seek(self.offset - self.length)
            if zlib.crc32(file.read(self.length)) != self.crc:
                return _Place()
        return self

    def behind(self, text: bytes) -> _Place:
        """The place behind one line more, newline included."""
        return _Place(self.offset + len(text), len(text), zlib.crc32(text))


def _line(text: bytes) -> MetricLine | None:
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:  # torn by the death of its writer
        return None


def _remembered(path: Path) -> tuple[_Place, Delivered]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return _Place(), Delivered()
    if len(data) != _CURSOR.size + 4 or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        return _Place(), Delivered()
    offset, length, crc, update, epoch = _CURSOR.unpack(data[4:])
    return _Place(offset, length, crc), Delivered(update, epoch)


def _remember(path: Path, place: _Place, done: Delivered) -> None:
    data = _CURSOR.pack(place.offset, place.length, place.crc, done.update, done.epoch)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # One write, so that a killed reader leaves the old words or the new ones.
        os.pwrite(descriptor, zlib.crc32(data).to_bytes(4, "little") + data, 0)
    finally:
        os.close(descriptor)
