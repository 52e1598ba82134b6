"""Write and read the two logs of a training: the commit log and the metrics.

`training-<k>.commits.jsonl` proves that every update used every sample once. `training-<k>.metrics.jsonl` feeds the
loggers, the card and the monitor. The next rank 0 continues where the last one stopped (`jsonl.py`), or removes updates
that no survivor has (`Recorder.rewind`). Numbers without a JSON form (NaN, infinities) become null. The formats are in
docs/guide/results.md, and further fields are additions.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

import msgspec

from edt_sdk.training.records.full_disk import when_there_is_room
from edt_sdk.training.records.jsonl import JsonLines, backwards, cut_torn_line, truncate


class ShardLine(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a shard of a committed update. `indices` are its samples in the order of the calls of `__getitem__`."""

    shard: int
    pid: int
    worker: int
    indices: tuple[int, ...]


class CommitLine(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a committed update. `time` is in seconds since the epoch (UTC)."""

    update: int
    epoch: int
    generation: int
    world: int
    time: float
    shards: tuple[ShardLine, ...]


class TrainLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="train"):
    """Holds the metrics of an update: means over its samples.

    Attributes:
        shards: (mean loss, accuracy, samples) of each of the V shards, (None, None, 0) for an empty shard.
        workers: the worker that computed each shard.
        updates_per_epoch: lets a reader recognize the end of an epoch.
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
    """Holds the metrics of a validation: means over the test set. `update` is the last update committed before.

    Attributes:
        name: of an evaluation of a script's own loop, "" without one.
        drawn: whether figures draw it: one of several evaluations.
        number: grows with each validation of a training. None where there is one an epoch.
    """

    __test__: ClassVar[bool] = False  # not a test of pytest's

    epoch: int
    update: int
    loss: float | None
    accuracy: float | None
    time: float
    world: int = 0
    metrics: dict[str, float | None] = {}
    name: str = ""
    drawn: bool = True
    number: int | None = None

    @property
    def place(self) -> int:
        """Return what grows with each validation."""
        return self.epoch if self.number is None else self.number


MetricLine = TrainLine | TestLine

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[MetricLine] = msgspec.json.Decoder(MetricLine)
_commits: msgspec.json.Decoder[CommitLine] = msgspec.json.Decoder(CommitLine)
_TEST = b'{"kind":"test"'
# Offset after the last line, its length and checksum, last update, last validation.
_CURSOR = struct.Struct("<QQQqq")


class Recorder:
    """Appends to both files, which are created (0600) with the first line. One member at a time uses a recorder.

    The commit lines of lost updates move to the file `discarded`, or are dropped if it is None. A full disk is waited
    for while `patient` returns True, see `when_there_is_room`.
    """

    def __init__(
        self,
        commits: Path,
        metrics: Path,
        *,
        discarded: Path | None = None,
        patient: Callable[[], bool] = lambda: False,
    ) -> None:
        self._paths = commits, metrics
        self._patient = patient
        self._discarded = discarded
        self._commits = JsonLines(commits)
        self._metrics = JsonLines(metrics)
        self._measured: Delivered | None = None

    def commit(self, line: CommitLine) -> None:
        """Record one update."""
        self._append(self._commits, line)

    def metric(self, line: MetricLine) -> None:
        """Record the metrics of an update or of a validation, unless the file has them already.

        Rank 0 may die after it wrote a line and before the others know, so the next rank 0 may record it again.
        """
        if self._measured is None:
            self._measured = _last_measured(self._paths[1])
        if self._measured.has(line):
            return
        self._append(self._metrics, line)
        self._measured = self._measured.after(line)

    def next_update(self) -> int:
        """Return the number of the update after the commit log's last line, 0 for an empty log. Cut a torn line off."""
        cut_torn_line(self._paths[0])
        for _, line in backwards(self._paths[0]):
            return _commits.decode(line).update + 1
        return 0

    def rewind(self, updates: int) -> None:
        """Remove the lines after the first `updates` updates from both files.

        Lines of the commit log move to the file of discarded lines. They are on disk there before they are removed
        here, and each (update, generation) is there once, however often this is interrupted. The metrics of the lost
        updates and of the validations after them are removed. A validation directly after update `updates` − 1 stays,
        and is not recorded a second time.
        """
        # Closing also drops the cached end of the metrics, which is wrong after the cut.
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
        """Close both files. The next line opens them again."""
        self._commits.close()
        self._metrics.close()
        self._measured = None

    def _append(self, file: JsonLines, line: CommitLine | MetricLine) -> None:
        data = _encoder.encode(line) + b"\n"
        when_there_is_room(lambda: file.append(data), self._patient)

    def _discard(self, lines: list[CommitLine]) -> None:
        if self._discarded is None:
            return
        # Cut first: a torn line must not count as written.
        cut_torn_line(self._discarded)
        decoded = (_commits.decode(data) for _, data in backwards(self._discarded))
        there = {(line.update, line.generation) for line in decoded}
        new = [line for line in lines if (line.update, line.generation) not in there]
        target = JsonLines(self._discarded)
        try:
            for line in new:
                self._append(target, line)
            target.sync()
        finally:
            target.close()


def epoch_behind(line: MetricLine) -> int:
    """Return the epoch (from 0) of the update after a line."""
    closes = isinstance(line, TestLine) or (line.update + 1) % max(line.updates_per_epoch, 1) == 0
    return line.epoch + 1 if closes else line.epoch


@dataclass(frozen=True, slots=True)
class Delivered:
    """Marks how far a metrics file goes, or was read: the last update's number and the last validation's place.

    Both only grow, even where an update is computed twice. −1 stands for none.
    """

    update: int = -1
    test: int = -1

    def has(self, line: MetricLine) -> bool:
        """Return whether a line is already covered."""
        return line.update <= self.update if isinstance(line, TrainLine) else line.place <= self.test

    def after(self, line: MetricLine) -> Delivered:
        """Return the position after one more line."""
        if isinstance(line, TrainLine):
            return Delivered(line.update, self.test)
        return Delivered(self.update, line.place)


def _last_measured(path: Path) -> Delivered:
    cut_torn_line(path)
    found = Delivered()
    for _, data in backwards(path):
        is_test = data.startswith(_TEST)
        # Not every line is decoded, as a long file without any validation is read to its beginning.
        if found.test < 0 if is_test else found.update < 0:
            found = found.after(_decoder.decode(data))
        if found.update >= 0 and found.test >= 0:
            break
    return found


def _end_of_metrics(path: Path, updates: int) -> int:
    """Return the offset after the lines that hold when `updates` updates are committed."""
    for offset, data in backwards(path):
        if _decoder.decode(data).update < updates:
            return offset + len(data) + 1
    return 0


class MetricsFollower:
    """Reads a metrics file while it grows: each update and each validation once and in order.

    The file may be cut and grow again (`Recorder.rewind`). What is computed a second time is skipped.

    Args:
        path: the file.
        delivered: a file with the position up to which lines were delivered, so that another reader continues there.
            None starts at the first line. A line counts as delivered when the next one is requested.
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
        """Yield the lines that are new since the last call."""
        try:
            with self._path.open("rb") as file:
                # The file may have been cut and written again since the last call (`Recorder.rewind`).
                self._place = self._place.checked(file)
                file.seek(self._place.offset)
                data = file.read()
        except FileNotFoundError:
            return
        # A last line without a newline is still being written, and the next call reads it.
        for text in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self._place = self._place.behind(text)
            line = _line(text)
            if line is None or self._done.has(line):
                continue
            yield line
            # After the yield: a driver that dies inside a logger gets the line again, instead of never.
            self._done = self._done.after(line)
            if self._memory is not None:
                _remember(self._memory, self._place, self._done)

    def delivered_before(self) -> Iterator[MetricLine]:
        """Yield the lines that earlier readers with the same `delivered` file delivered, to restore lost sums."""
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
    """Marks an offset after a line of `length` bytes with checksum `crc`, which show whether the file was rewritten."""

    offset: int = 0
    length: int = 0
    crc: int = 0

    def checked(self, file: BinaryIO) -> _Place:
        """Return this position, or the start of the file when the line before it has changed since it was read."""
        if self.offset:
            file.seek(self.offset - self.length)
            if zlib.crc32(file.read(self.length)) != self.crc:
                return _Place()
        return self

    def behind(self, text: bytes) -> _Place:
        """Return the position after one more line, including its newline."""
        return _Place(self.offset + len(text), len(text), zlib.crc32(text))


def _line(text: bytes) -> MetricLine | None:
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:  # torn by the death of its writer: skip it
        return None


def _remembered(path: Path) -> tuple[_Place, Delivered]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return _Place(), Delivered()
    # A record that is not complete counts as none.
    if len(data) != _CURSOR.size + 4 or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        return _Place(), Delivered()
    offset, length, crc, update, test = _CURSOR.unpack(data[4:])
    return _Place(offset, length, crc), Delivered(update, test)


def _remember(path: Path, place: _Place, done: Delivered) -> None:
    data = _CURSOR.pack(place.offset, place.length, place.crc, done.update, done.test)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # One write, so that a killed reader leaves the old record or the new one.
        os.pwrite(descriptor, zlib.crc32(data).to_bytes(4, "little") + data, 0)
    finally:
        os.close(descriptor)
