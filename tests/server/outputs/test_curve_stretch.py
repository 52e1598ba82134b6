"""A stretch of a long training: what lies there, read again in detail, and nothing else."""

from __future__ import annotations

import json
import math

import pytest

from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.history.picture_data import PLACES
from edt_server.outputs.curve_stretch import MOST_UPDATES, detail
from edt_server.outputs.training_curve import CurveShelf

SAMPLES = 4


def lines(updates):
    for at in range(updates):
        loss = None if at % 1000 == 7 else 1 / (1 + at)
        train = {
            "kind": "train",
            "update": at,
            "epoch": at // 100,
            "samples": SAMPLES,
            "loss": loss,
            "world": 1 + at % 2,
        }
        yield json.dumps({**train, "time": 1000.0 + at / 2, "shards": [[0.5, 0.5, 2]] * 8})
        if at % 100 == 99:
            yield json.dumps({"kind": "test", "epoch": at // 100, "update": at, "loss": 0.5, "time": 1000.0 + at / 2})


@pytest.fixture
def training(tmp_path):
    """Makes the metrics of so many updates; the thinned curve and the file."""

    def make(updates):
        paths = JobPaths(tmp_path, "ann", "digits-aaaaaa")
        paths.job_dir.mkdir(parents=True)
        paths.metrics(0).write_text("".join(f"{line}\n" for line in lines(updates)))
        return CurveShelf().read(paths), paths.metrics(0)

    return make


@pytest.mark.parametrize("axis", PLACES)
@pytest.mark.parametrize(("first", "last"), [(0, 40), (7300, 7349), (29_950, 29_999), (11_111, 11_111)])
def test_every_update_of_a_short_one_is_there(training, axis, first, last):
    curve, file = training(30_000)
    place = {"samples": lambda at: SAMPLES * (at + 1), "updates": lambda at: at + 1, "time": lambda at: 1000 + at / 2}
    found = detail(curve, file, place[axis](first), place[axis](last), PLACES[axis])
    assert [point.update for point in found] == list(range(first, last + 1))
    assert [point.samples for point in found] == [SAMPLES * (at + 1) for at in range(first, last + 1)]
    assert found[0].loss == pytest.approx(1 / (1 + first))


def test_a_very_long_one_is_told_by_what_was_kept(training):
    curve, file = training(MOST_UPDATES + 2000)
    file.unlink()
    found = detail(curve, file, 0, math.inf, PLACES["updates"])
    assert found == curve.train


def test_where_there_is_none_there_is_nothing(training):
    curve, file = training(300)
    assert detail(curve, file, 301, 400, PLACES["updates"]) == ()
    assert detail(curve, file, 10.2, 10.8, PLACES["updates"]) == ()


def test_a_torn_line_is_passed_over(training):
    curve, file = training(5000)
    text = file.read_text().splitlines()
    text[2600] = text[2600][:20]
    file.write_text("\n".join(text) + "\n")
    found = detail(curve, file, 2500, 2700, PLACES["updates"])
    assert len(found) == 200
