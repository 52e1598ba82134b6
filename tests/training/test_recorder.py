"""The two logs: whole lines, read while they grow, in the documented format."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from edt_sdk.training.recorder import CommitLine, MetricsReader, Recorder, ShardLine, TestLine, TrainLine


def train(update: int, loss: float | None = 0.5) -> TrainLine:
    shards = ((loss, 1.0, 2), (None, None, 0))
    return TrainLine(update=update, epoch=0, samples=2, loss=loss, accuracy=None, world=1, time=2.0, shards=shards)


def test_the_format_is_the_documented_one(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "commits", tmp_path / "metrics")
    shard = ShardLine(shard=0, pid=4711, worker=0, indices=(5, 3))
    recorder.commit(CommitLine(update=0, epoch=0, generation=1, world=1, time=1.5, shards=(shard,)))
    recorder.metric(train(0, float("nan")))
    recorder.metric(TestLine(epoch=0, update=0, loss=float("inf"), accuracy=0.5, time=3.0))
    recorder.close()
    assert json.loads((tmp_path / "commits").read_text()) == {
        "update": 0, "epoch": 0, "generation": 1, "world": 1, "time": 1.5,
        "shards": [{"shard": 0, "pid": 4711, "worker": 0, "indices": [5, 3]}],
    }  # fmt: skip
    first, second = map(json.loads, (tmp_path / "metrics").read_text().splitlines())
    assert first["kind"] == "train"
    assert first["loss"] is None
    assert first["shards"] == [[None, 1.0, 2], [None, None, 0]]
    assert second["kind"] == "test"
    assert second["loss"] is None
    assert (tmp_path / "commits").stat().st_mode & 0o777 == 0o600


def test_another_rank_0_appends_and_a_reader_sees_each_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    reader = MetricsReader(path)
    assert list(reader.read()) == []
    first, second = Recorder(tmp_path / "c", path), Recorder(tmp_path / "c", path)
    first.metric(train(0))
    assert list(reader.read()) == [train(0)]
    first.metric(train(1))
    first.close()
    second.metric(train(2))
    half = msgspec.json.encode(train(3)) + b"\n"
    with path.open("ab") as file:
        file.write(half[:20])
    assert list(reader.read()) == [train(1), train(2)]
    with path.open("ab") as file:
        file.write(half[20:])
    assert list(reader.read()) == [train(3)]
    assert list(reader.read()) == []
    second.close()
