"""What a script wrote itself becomes the reports of its trial, and nothing that it can write does harm."""

from __future__ import annotations

import json
import os

import pytest

from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.searching import Trial
from edt_server.searching.events import Reported
from edt_server.service.written_metrics import FILE, LARGEST, MOST_ENTRIES, MOST_METRICS, Entry, parse, read, reports


def search(**changes):
    job = JobSpec(name="s", main="train.py", max_workers=1, framework="PyTorch")
    return SearchSpec(job=job, metric="loss", **{"trials": 2, **changes}).resolved()


def encoded(*entries):
    return json.dumps(entries).encode()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (encoded({"loss": 2}, {"loss": 1.5}), [(1, {"loss": 2.0}), (2, {"loss": 1.5})]),
        (encoded({"step": 20, "loss": 1}, {"step": 10, "loss": 2}), [(10, {"loss": 2.0}), (20, {"loss": 1.0})]),
        (encoded({"steps": 100.0, "loss": 1, "acc": 0.5}), [(100, {"loss": 1.0, "acc": 0.5})]),
        (encoded({"step": 3, "loss": 1}, {"step": 3, "loss": 4}), [(3, {"loss": 4.0})]),
        (encoded({"step": True, "loss": 1}), [(1, {"loss": 1.0})]),
        (encoded({"step": -4, "loss": 1}, {"step": 10**9, "loss": 2}), [(1, {"loss": 1.0}), (2, {"loss": 2.0})]),
        (b'[{"loss": NaN}, {"loss": Infinity}]', [(1, {"loss": None}), (2, {"loss": None})]),
        (b'[{"loss": 1' + b"0" * 400 + b"}]", [(1, {"loss": None})]),
        (encoded({"loss": "0.5", "name": "a", "good": True, "acc": 1}), [(1, {"acc": 1.0})]),
        (encoded(3, None, [1], {}, {"step": 1}, {"loss": 1}), [(6, {"loss": 1.0})]),
    ],
)
def test_a_list_of_metrics(data, found):
    assert parse(data) == [Entry(*each) for each in found]


NO_LISTS = [
    *(b"", b"{}", b"null", b"3", b"\xff", b'[{"loss": 1', b'[{"loss": 1e}]'),
    *(b"[" * 100_000, b'{"a":' * 100_000, b'[{"loss": 1' + b"0" * 10_000 + b"}]"),
]


@pytest.mark.parametrize("data", NO_LISTS, ids=range(len(NO_LISTS)))
def test_what_is_no_such_list_has_no_reports(data):
    assert parse(data) == []


def test_an_entry_with_very_many_metrics_keeps_the_first():
    (entry,) = parse(encoded({"x" * 1000: 1, **{f"m{k}": k for k in range(10_000)}}))
    assert list(entry.metrics) == [f"m{k}" for k in range(MOST_METRICS)]


def test_each_entry_is_a_report_where_the_script_counts_as_it_likes():
    entries = [Entry(10, {"loss": 2.0}), Entry(20, {"loss": 3.0})]
    assert reports(entries, Trial(4, {}), search()) == [Reported(4, each.step, each.metrics) for each in entries]
    assert reports([], Trial(4, {}), search()) == []


def test_of_very_many_the_newest_are_told_and_the_best():
    entries = [Entry(k, {"loss": abs(k - 5.0)}) for k in range(1, MOST_ENTRIES + 101)]
    told = reports(entries, Trial(0, {}), search())
    assert [each.budget for each in told] == [5, *range(102, MOST_ENTRIES + 101)]


@pytest.mark.parametrize(
    ("value", "direction", "loss"), [("last", "minimize", 3), ("best", "minimize", 1), ("best", "maximize", 4)]
)
def test_where_the_search_counts_epochs_it_is_one_report_after_them(value, direction, loss):
    entries = [
        Entry(100, {"loss": 4.0}),
        Entry(200, {"loss": 1.0}),
        Entry(300, {"loss": None}),
        Entry(400, {"loss": 3.0}),
    ]
    spec = search(value=value, direction=direction, algorithm="random", epochs=9)
    assert reports(entries, Trial(1, {}, budget=9), spec) == [Reported(1, 9, {"loss": float(loss)})]
    spec = search(value=value, direction=direction, algorithm="halving", epochs=9, min_epochs=3, resource="epochs")
    assert reports(entries, Trial(1, {"epochs": 3}), spec) == [Reported(1, 3, {"loss": float(loss)})]
    assert reports([], Trial(1, {"epochs": 3}), spec) == []


def test_a_file_that_is_no_regular_one_or_is_too_large_is_not_read(tmp_path):
    paths = JobPaths(tmp_path, "ann", "job-1")
    assert read(paths) == []
    paths.result_dir.mkdir(parents=True)
    file = paths.result_dir / FILE
    file.write_bytes(encoded({"loss": 1}))
    assert read(paths) == [Entry(1, {"loss": 1.0})]
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert read(paths) == []
    file.unlink()
    os.mkfifo(file)
    assert read(paths) == []
    file.unlink()
    file.write_bytes(b"[" + b" " * LARGEST + b"]")
    assert read(paths) == []
