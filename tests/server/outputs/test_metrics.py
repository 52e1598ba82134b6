"""Curves are read forward without loss, and thinned without losing what one looks for."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.outputs.metrics import MetricsReader, thin, validations
from edt_server.outputs.tail import to_cursor
from edt_server.service.last_metrics import last_metrics


@pytest.fixture
def paths(tmp_path):
    paths = JobPaths(tmp_path, "ann", "job-1")
    paths.job_dir.mkdir(parents=True)
    return paths


def write(paths, training, *points, end="\n"):
    with paths.metrics(training).open("a") as file:
        file.write("\n".join(json.dumps(point) for point in points) + end)


def train(update, loss=1.0):
    return {"kind": "train", "update": update, "epoch": 0, "loss": loss, "shards": [[loss, None, 3]], "world": 2}


def test_points_carry_their_training_and_not_the_shards(paths):
    write(paths, 0, train(0), {"kind": "test", "epoch": 0, "update": 0, "loss": 0.5})
    write(paths, 11, train(0))
    write(paths, 2, train(0))
    batch = MetricsReader(paths).read(final=True)
    assert [point["training"] for point in batch.points] == [0, 0, 2, 11]
    assert all("shards" not in point for point in batch.points)
    assert [len(batch.of_kind(kind)) for kind in ("train", "test")] == [3, 1]
    assert batch.done


def test_validations_are_those_that_a_reader_finds(paths):
    assert validations(paths) == []
    encode = msgspec.json.encode
    for training in (0, 1):
        lines = [encode(line) for n in range(3) for line in (train(n), {"kind": "test", "epoch": n, "loss": n / 2})]
        paths.metrics(training).write_bytes(b"\n".join([*lines, b'{"kind":"test","epoch":3,"lo']))
    found = MetricsReader(paths).read(final=True).of_kind("test")
    assert len(found) == 6
    assert validations(paths) == found


def test_goes_on_where_it_stopped_and_holds_back_half_a_line(paths):
    reader = MetricsReader(paths)
    assert reader.read().points == ()
    write(paths, 0, train(0), train(1))
    write(paths, 0, train(2), end="")
    first = reader.read()
    assert [point["update"] for point in first.points] == [0, 1]
    write(paths, 0, end="\n")
    write(paths, 1, train(0))
    assert [(point["training"], point["update"]) for point in reader.read().points] == [(0, 2), (1, 0)]
    again = MetricsReader(paths, after=first.cursors[0]).read()
    assert [(point["training"], point["update"]) for point in again.points] == [(0, 1), (0, 2), (1, 0)]


def test_a_line_torn_by_the_death_of_its_writer_is_passed_over(paths):
    write(paths, 0, train(0))
    with paths.metrics(0).open("a") as file:
        file.write('{"kind": "train", "upd')
    assert MetricsReader(paths).read(final=True).done
    write(paths, 0, train(1))
    assert [point["update"] for point in MetricsReader(paths).read_all(final=True).points] == [0]


def cut(paths, training, lines):
    kept = paths.metrics(training).read_bytes().splitlines(keepends=True)[:lines]
    paths.metrics(training).write_bytes(b"".join(kept))


def numbers(batch):
    return [point["epoch" if point["kind"] == "test" else "update"] for point in batch.points]


@pytest.mark.parametrize("kept", range(8))
@pytest.mark.parametrize("again", range(8))
def test_what_is_computed_again_is_given_once(paths, kept, again):
    test = {"kind": "test", "epoch": 0, "update": 5, "loss": 0.5}
    write(paths, 0, *map(train, range(6)), test)
    write(paths, 1, train(0))
    reader = MetricsReader(paths)
    first = reader.read()
    assert numbers(first) == [0, 1, 2, 3, 4, 5, 0, 0]
    resumed = [MetricsReader(paths, after=cursor) for cursor in first.cursors[:7]]
    cut(paths, 0, kept)
    assert reader.read().points == ()
    # Other figures, and so other lengths; perhaps not as far as before.
    everything = [*(train(update, loss=1 / (update + 3)) for update in range(6)), test, train(6), train(7)]
    new = everything[kept : kept + again]
    if new:
        write(paths, 0, *new)
    beyond = [point["update"] for point in new if point["kind"] == "train" and point["update"] > 5]
    assert numbers(reader.read()) == beyond
    assert numbers(reader.read()) == []
    whole = [(point["kind"], point["update"]) for point in everything[: kept + again]]
    for number, other in enumerate(resumed):
        batch = other.read()
        found = [(point["kind"], point["update"]) for point in batch.points if point["training"] == 0]
        assert found == whole[number + 1 :]
        assert other.read().points == ()
        assert MetricsReader(paths, after=batch.next).read().points == ()


def test_a_cursor_of_an_older_server_goes_on(paths):
    write(paths, 0, train(0), train(1))
    first = len(paths.metrics(0).read_bytes().splitlines(keepends=True)[0])
    assert numbers(MetricsReader(paths, after=to_cursor({"0": first})).read()) == [1]
    assert numbers(MetricsReader(paths, after=to_cursor({"0": 10_000})).read()) == [0, 1]


@pytest.mark.parametrize("cursor", ["x", "eyJhIjoxfQ", "eyIwIjotMX0"])
def test_refuses_a_cursor_that_is_none(paths, cursor):
    with pytest.raises(InvalidRequest):
        MetricsReader(paths, after=cursor)


losses = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=False))


@given(st.lists(losses, max_size=300), st.integers(4, 60))
def test_thinning_keeps_first_last_and_extremes_in_order(values, count):
    points = [train(k, value) for k, value in enumerate(values)]
    kept = thin(points, count)
    updates = [point["update"] for point in kept]
    assert updates == sorted(set(updates))
    assert len(kept) == min(count, len(points)) or len(kept) < count
    if points:
        assert (kept[0], kept[-1]) == (points[0], points[-1])
    numbers = [value for value in values if value is not None and value == value]
    if numbers:
        assert max(numbers) in [point["loss"] for point in kept]
    if len(numbers) == len(values) and numbers:
        assert min(numbers) in [point["loss"] for point in kept]


def test_several_evaluations_of_an_epoch_are_all_there(paths):
    tests = [{"kind": "test", "epoch": 1, "number": number, "loss": 0.5} for number in (4, 5, 9)]
    write(paths, 0, {"kind": "test", "epoch": 0, "number": None, "loss": 0.5}, *tests, tests[0])
    batch = MetricsReader(paths).read()
    assert [point["number"] for point in batch.points] == [None, 4, 5, 9]
    write(paths, 0, tests[-1], {**tests[-1], "number": 12})
    assert [point["number"] for point in MetricsReader(paths, after=batch.next).read().points] == [12]


def test_the_last_metrics_are_those_of_each_evaluation(paths):
    drawn = {"kind": "test", "epoch": 0, "loss": 0.5, "accuracy": None, "metrics": {"f1": 0.75}}
    other = {**drawn, "name": "hard", "drawn": False, "accuracy": 0.25}

    def record(training, *tests):
        with paths.metrics(training).open("ab") as file:
            file.write(msgspec.json.Encoder().encode_lines(tests))

    record(0, {**drawn, "loss": 9.0}, drawn)
    assert last_metrics(paths) == {"test_loss": 0.5, "f1": 0.75}
    record(0, other)
    assert last_metrics(paths) == {
        "test_loss": 0.5, "f1": 0.75, "hard_loss": 0.5, "hard_accuracy": 0.25, "hard_f1": 0.75,
    }  # fmt: skip
    record(1, {**drawn, "loss": None})
    assert last_metrics(paths) == {"f1": 0.75}
