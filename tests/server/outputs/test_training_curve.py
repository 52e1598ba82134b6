"""A training's curve: each line read once, few points kept, the extremes among them, whatever happens to the file."""

from __future__ import annotations

import json
import math
import threading

import pytest

from edt_sdk.pictures.parts.extremes import fewest, height
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.outputs.training_curve import MOST, Curve, CurveShelf


@pytest.fixture
def paths(tmp_path):
    made = JobPaths(tmp_path, "ann", "digits-1")
    made.job_dir.mkdir(parents=True)
    return made


def train(update, loss=1.0, world=1, time=None, samples=64):
    return {
        "kind": "train", "update": update, "epoch": 0, "samples": samples, "loss": loss, "accuracy": None,
        "world": world, "time": 1000.0 + update if time is None else time, "shards": [[loss, None, samples]],
    }  # fmt: skip


def test(update, loss):
    return {"kind": "test", "epoch": 0, "update": update, "loss": loss, "accuracy": 0.5, "time": 1000.0 + update}


test.__test__ = False


def write(paths, points, *, training=0, mode="a"):
    with paths.metrics(training).open(mode) as file:
        file.writelines(json.dumps(point) + "\n" for point in points)


def test_nothing_is_an_empty_curve(paths):
    assert CurveShelf().read(paths) == Curve(0)


def test_a_job_that_is_deleted_while_somebody_looks_has_no_curve(paths):
    """Its file was there when it was looked for and is not when it is opened."""
    paths.metrics(0).symlink_to(paths.job_dir / "deleted")
    assert CurveShelf().read(paths) == Curve(0)


def test_samples_add_up_and_sizes_are_the_changes(paths):
    write(paths, [train(0), train(1, world=2, samples=32), test(1, 0.4), train(2, world=2)])
    curve = CurveShelf().read(paths)
    assert [(point.update, point.samples, point.world) for point in curve.train] == [
        (0, 64, 1),
        (1, 96, 2),
        (2, 160, 2),
    ]
    assert [point.update for point in curve.sizes] == [0, 1]
    assert [(point.update, point.loss) for point in curve.test] == [(1, 0.4)]
    assert curve.updates == 3


def test_what_is_new_is_added_and_a_torn_line_waits(paths):
    shelf = CurveShelf()
    write(paths, [train(0)])
    assert shelf.read(paths).updates == 1
    with paths.metrics(0).open("a") as file:
        file.write(json.dumps(train(1))[:20])
    assert shelf.read(paths).updates == 1
    with paths.metrics(0).open("a") as file:
        file.write(json.dumps(train(1))[20:] + "\n")
    assert [point.update for point in shelf.read(paths).train] == [0, 1]


def test_a_file_that_was_cut_is_read_anew(paths):
    shelf = CurveShelf()
    write(paths, [train(0), train(1, loss=7.0)])
    assert shelf.read(paths).train[-1].loss == 7.0
    write(paths, [train(0), train(1, loss=8.0), train(2, loss=9.0)], mode="w")
    assert [point.loss for point in shelf.read(paths).train] == [1.0, 8.0, 9.0]


def test_lines_that_are_none_of_ours_are_left_out(paths):
    with paths.metrics(0).open("w") as file:
        file.write(
            'nonsense\n{"kind": "train"}\n[]\n' + json.dumps(train(0)) + "\n" + json.dumps(train(0, loss=3.0)) + "\n"
        )
    assert [point.loss for point in CurveShelf().read(paths).train] == [1.0]


def test_the_last_training_is_the_one(paths):
    write(paths, [train(0)])
    write(paths, [train(0, loss=5.0)], training=1)
    curve = CurveShelf().read(paths)
    assert (curve.training, curve.train[0].loss) == (1, 5.0)


def test_a_long_one_keeps_few_points_and_every_extreme(paths):
    count = 30_000
    losses = {at: math.sin(at * 1.7) for at in range(count)} | {4321: 99.0, 17_000: -99.0, 25_000: None}
    write(paths, [train(at, losses[at]) for at in range(count)])
    curve = CurveShelf().read(paths)
    assert len(curve.train) <= 3 * MOST + 1
    thirds = [sum(1 for point in curve.train if at <= point.update < at + 10_000) for at in (0, 10_000, 20_000)]
    assert max(thirds) < 1.5 * min(thirds), "the beginning is told as finely as the end"
    kept = {point.loss for point in curve.train}
    assert {99.0, -99.0, None} <= kept
    assert curve.train[-1].update == count - 1
    assert curve.train[-1].samples == 64 * count
    few = curve.few(100)
    assert len(few.train) <= 100
    assert {99.0, None} <= {point.loss for point in few.train}
    assert few.train[-1] == curve.train[-1]


def test_speeds_leave_pauses_out(paths):
    points = [train(at, world=2, time=1000.0 + at / 10) for at in range(50)]
    points += [train(50 + at, world=2, time=2000.0 + at / 10) for at in range(50)]  # suspended in between
    points += [train(100 + at, world=4, time=2005.0 + at / 20) for at in range(50)]
    write(paths, points)
    speeds = {world: samples / seconds for world, (samples, seconds) in CurveShelf().read(paths).speeds.items()}
    assert speeds == pytest.approx({2: 640.0, 4: 1280.0})


def test_the_shelf_forgets_what_nobody_looks_at(tmp_path):
    shelf = CurveShelf(most=2)
    jobs = [JobPaths(tmp_path, "ann", f"job-{number}") for number in range(3)]
    for paths in jobs:
        paths.job_dir.mkdir(parents=True)
        write(paths, [train(0)])
    assert [shelf.read(paths).updates for paths in (*jobs, *jobs)] == [1] * 6
    assert len(shelf._readings) == 2


def test_several_at_once_see_the_same(paths):
    write(paths, [train(at) for at in range(5000)])
    shelf, seen = CurveShelf(), []
    threads = [threading.Thread(target=lambda: seen.append(shelf.read(paths).updates)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [5000] * 4


@pytest.mark.parametrize("most", [4, 5, 50])
def test_fewest_keeps_ends_and_count(paths, most):
    write(paths, [train(at, loss=float(at % 7)) for at in range(500)])
    points = CurveShelf().read(paths).train
    few = fewest(points, most, height)
    assert len(few) <= most
    assert (few[0], few[-1]) == (points[0], points[-1])


def test_of_several_evaluations_one_is_drawn(paths):
    write(paths, [train(0), test(0, 0.5), {**test(0, 7.0), "drawn": False}, train(1), {**test(1, 8.0), "drawn": False}])
    write(paths, [test(1, 0.25)])
    assert [point.loss for point in CurveShelf().read(paths).test] == [0.5, 0.25]
