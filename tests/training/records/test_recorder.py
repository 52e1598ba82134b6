"""The two logs: whole lines, read while they grow, in the documented format."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.training.records.recorder import CommitLine, MetricsFollower, Recorder, ShardLine, TestLine, TrainLine


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
    reader = MetricsFollower(path)
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


# --- lost updates -----------------------------------------------------------------------------------------------------

FREQUENCY = 3
LAST = 60  # more than six times nine


def commit(update: int, generation: int) -> CommitLine:
    shard = ShardLine(shard=0, pid=1, worker=0, indices=(update,))
    return CommitLine(update=update, epoch=0, generation=generation, world=1, time=generation, shards=(shard,))


def test(epoch: int) -> TestLine:
    return TestLine(epoch=epoch, update=(epoch + 1) * FREQUENCY - 1, loss=0.25, accuracy=None, time=1.0)


test.__test__ = False  # type: ignore[attr-defined]


def record(recorder: Recorder, update: int, generation: int) -> None:
    """What rank 0 does for an update, and for the validation that follows every third one."""
    recorder.commit(commit(update, generation))
    recorder.metric(train(update))
    if (update + 1) % FREQUENCY == 0:
        recorder.metric(test(update // FREQUENCY))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


class Disk:
    """Three files and a recorder over them."""

    def __init__(self, folder: Path) -> None:
        self.commits, self.metrics, self.discarded = folder / "commits", folder / "metrics", folder / "discarded"

    def recorder(self) -> Recorder:
        return Recorder(self.commits, self.metrics, discarded=self.discarded)


# What happens to a training: updates, then a loss of everybody after which `kept` per cent of them are known.
losses = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 100), st.booleans()), max_size=6)


@settings(max_examples=60, deadline=None)
@given(happened=losses)
def test_rewound_logs_are_those_of_a_training_that_nothing_happened_to(tmp_path_factory, happened) -> None:
    disk = Disk(tmp_path_factory.mktemp("disk"))
    reader = MetricsFollower(disk.metrics, delivered=disk.metrics.with_name("delivered"))
    delivered: list[object] = []
    updates, expected = 0, []
    for generation, (more, kept, torn) in enumerate(happened):
        recorder = disk.recorder()
        for update in range(updates, updates + more):
            record(recorder, update, generation)
        recorder.close()
        delivered += list(reader.read())
        if torn and disk.commits.exists():
            for path in (disk.commits, disk.metrics):
                with path.open("ab") as file:
                    file.write(b'{"update"')
            reader = MetricsFollower(disk.metrics, delivered=disk.metrics.with_name("delivered"))
        known = (updates + more) * kept // 100
        recorder = disk.recorder()
        assert recorder.next_update() == updates + more
        expected += [(line["update"], line["generation"]) for line in lines(disk.commits)[known:]]
        recorder.rewind(known)
        recorder.rewind(known)
        assert recorder.next_update() == known
        updates = known
        # Those who resume may be before the validation that closes here, and record it again.
        if known and known % FREQUENCY == 0:
            recorder.metric(test(known // FREQUENCY - 1))
        recorder.close()
    recorder = disk.recorder()
    for update in range(updates, LAST):
        record(recorder, update, 99)
    recorder.close()
    delivered += list(reader.read())
    assert [line["update"] for line in lines(disk.commits)] == list(range(LAST))
    plain = Disk(disk.commits.parent / "plain")
    plain.commits.parent.mkdir()
    recorder = plain.recorder()
    for update in range(LAST):
        record(recorder, update, 99)
    recorder.close()
    assert disk.metrics.read_bytes() == plain.metrics.read_bytes()
    assert delivered == list(MetricsFollower(plain.metrics).read())
    assert [(line["update"], line["generation"]) for line in lines(disk.discarded)] == expected
    assert len(set(expected)) == len(expected)


@pytest.mark.parametrize("torn", [0, 1, 40])
def test_a_rewind_that_was_interrupted_is_done_again_without_doubles(tmp_path: Path, monkeypatch, torn: int) -> None:
    disk = Disk(tmp_path)
    recorder = disk.recorder()
    for update in range(6):
        record(recorder, update, 1)

    def dies(path: Path, size: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("edt_sdk.training.records.recorder.truncate", dies)
        with pytest.raises(KeyboardInterrupt):
            recorder.rewind(2)
    recorder.close()
    assert len(lines(disk.discarded)) == 4
    os.truncate(disk.discarded, disk.discarded.stat().st_size - torn)
    recorder = disk.recorder()
    recorder.rewind(2)
    assert [line["update"] for line in lines(disk.discarded)] == [2, 3, 4, 5]
    assert [line["update"] for line in lines(disk.commits)] == [0, 1]
    assert [line["update"] for line in lines(disk.metrics)] == [0, 1]
    # Lost once more, by others.
    record(recorder, 2, 2)
    recorder.rewind(2)
    recorder.close()
    assert [(line["update"], line["generation"]) for line in lines(disk.discarded)][-1] == (2, 2)


def test_a_rewind_without_a_place_for_what_is_lost_loses_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "commits", tmp_path / "metrics")
    assert recorder.next_update() == 0
    recorder.rewind(0)
    for update in range(4):
        record(recorder, update, 0)
    recorder.rewind(0)
    recorder.close()
    assert sorted((path.name, path.stat().st_size) for path in tmp_path.iterdir()) == [("commits", 0), ("metrics", 0)]


# --- a driver that is started again -----------------------------------------------------------------------------------


def test_a_reader_goes_on_where_another_was_when_its_process_died(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    recorder = disk.recorder()
    for update in range(7):
        record(recorder, update, 0)
    memory = tmp_path / "delivered"
    first = MetricsFollower(disk.metrics, delivered=memory)
    assert list(first.delivered_before()) == []
    reading = first.read()
    given = [next(reading) for _ in range(4)]
    reading.close()  # in the middle of the fourth, which therefore does not count
    second = MetricsFollower(disk.metrics, delivered=memory)
    assert list(second.delivered_before()) == given[:3]
    assert list(second.read()) == [test(0), train(3), train(4), train(5), test(1), train(6)]
    recorder.rewind(3)
    third = MetricsFollower(disk.metrics, delivered=memory)
    assert list(third.read()) == []
    # What was cut off does not come back until it is computed again, whoever asks.
    assert list(third.delivered_before()) == [train(0), train(1), train(2), test(0)]
    for update in range(3, 8):
        record(recorder, update, 1)
    recorder.close()
    assert list(third.read()) == [train(7)]
    assert list(MetricsFollower(disk.metrics, delivered=memory).read()) == []
    memory.write_bytes(b"garbage")
    assert len(list(MetricsFollower(disk.metrics, delivered=memory).read())) == 10


def test_a_file_that_was_cut_and_is_as_long_again_is_noticed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    recorder, reader = disk.recorder(), MetricsFollower(disk.metrics)
    for update in range(6):
        recorder.metric(train(update))
    assert len(list(reader.read())) == 6
    recorder.rewind(1)
    for update in range(1, 9):  # other lengths: the old offset lies within a line
        recorder.metric(train(update, loss=1 / (update + 2)))
    recorder.close()
    assert [line.update for line in reader.read()] == [6, 7, 8]


def test_several_validations_of_an_epoch_are_each_recorded_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    of_the_epoch = TestLine(epoch=0, update=0, loss=0.5, accuracy=None, time=3.0)
    one, two = (
        msgspec.structs.replace(of_the_epoch, epoch=1, number=number, name=name, drawn=not name)
        for number, name in ((5, ""), (6, "train"))
    )
    recorder, reader = Recorder(tmp_path / "commits", path), MetricsFollower(path)
    for line in (of_the_epoch, one, one, two):
        recorder.metric(line)
    recorder.close()
    Recorder(tmp_path / "commits", path).metric(two)  # another rank 0 may not know that it is there
    assert list(reader.read()) == [of_the_epoch, one, two]
