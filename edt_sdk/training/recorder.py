"""Rank 0's two logs of a training: who computed what, and how good it was.

`training-<k>.commits.jsonl` proves that every update used every sample once; `training-<k>.metrics.jsonl` feeds the
loggers, the card and the monitor. One line is one `write` to a file opened for appending, so that lines never mix and
the next rank 0 goes on where the last one stopped. Numbers that JSON has no word for (NaN, infinities) become null. The
formats are in docs/architecture.md; fields beyond those are additions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec


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


class Recorder:
    """Appends to both files; they are created (0600) with the first line.

    Args:
        commits, metrics: the files.
    """

    def __init__(self, commits: Path, metrics: Path) -> None:
        self._commits = commits
        self._metrics = metrics
        self._descriptors: dict[Path, int] = {}

    def commit(self, line: CommitLine) -> None:
        """Record one update."""
        self._append(self._commits, line)

    def metric(self, line: MetricLine) -> None:
        """Record metrics of an update or of a validation."""
        self._append(self._metrics, line)

    def close(self) -> None:
        """Close both files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _append(self, path: Path, line: CommitLine | MetricLine) -> None:
        if path not in self._descriptors:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptors[path] = os.open(path, flags, 0o600)
        data = _encoder.encode(line) + b"\n"
        if os.write(self._descriptors[path], data) != len(data):
            raise OSError(f"{path} took only a part of a line; is the disk full?")


class MetricsReader:
    """Reads a metrics file while it grows, each whole line once and in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[MetricLine]:
        """The lines that are new since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        for line in data[:whole].splitlines():
            yield _decoder.decode(line)
