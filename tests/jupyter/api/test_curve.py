"""The columns of a job's curve over HTTP: what they hold, how many there can be, and who may read them."""

from __future__ import annotations

import json

import pytest

from edt_sdk.pictures.parts.look import job_colour
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.outputs.training_curve import MOST


@pytest.fixture
def trained(submit, tmp_path):
    """Makes a job with the metrics of so many updates: four samples each, two a second, two workers from number 50."""

    async def make(updates):
        view = (await submit(name="digits")).json
        paths = JobPaths(tmp_path / "edt", view["owner"], view["id"])
        lines = []
        for at in range(updates):
            loss = None if at == 7 else 1 / (1 + at)
            train = {"kind": "train", "update": at, "epoch": 0, "samples": 4, "loss": loss, "world": 1 + (at >= 50)}
            lines.append({**train, "time": 1000 + at / 2})
            if at == 49:
                lines.append({"kind": "test", "update": at, "epoch": 0, "loss": 0.5, "time": 1025.0})
        paths.metrics(0).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return view["id"]

    return make


async def test_its_columns(call, trained):
    job = await trained(100)
    answer = await call("GET", f"jobs/{job}/curve")
    assert answer.status == 200
    curve = answer.json
    assert curve["axis"] == "samples"
    assert curve["colour"] == job_colour(job)
    assert curve["text"].startswith("digits: training loss from 1 to 0.01, now and then it is not a number, ")
    assert curve["train"]["x"] == [4.0 * (at + 1) for at in range(100)]
    assert curve["train"]["loss"][6:9] == [1 / 7, None, 1 / 9]
    assert curve["test"] == {"x": [200.0], "loss": [0.5]}
    assert curve["workers"] == {"x": [4.0, 204.0], "count": [1, 2]}
    assert curve["marks"] == [{"at": 204.0, "kind": "grow", "text": "1 to 2 workers from update 51 on"}]


@pytest.mark.parametrize(("axis", "first", "tested"), [("updates", 1, 50), ("time", 1000, 1025)])
async def test_its_columns_over_other_axes(call, trained, axis, first, tested):
    curve = (await call("GET", f"jobs/{await trained(100)}/curve", params={"x": axis})).json
    assert (curve["axis"], curve["train"]["x"][0], curve["test"]["x"]) == (axis, first, [tested])


async def test_its_size_is_bounded_and_the_ends_are_there(call, trained):
    curve = (await call("GET", f"jobs/{await trained(20_000)}/curve", params={"x": "updates"})).json
    assert MOST / 2 < len(curve["train"]["x"]) <= 3 * MOST + 1
    assert (curve["train"]["x"][0], curve["train"]["x"][-1]) == (1, 20_000)
    assert None in curve["train"]["loss"]


async def test_what_has_not_changed_is_not_sent_again(call, trained):
    path = f"jobs/{await trained(10)}/curve"
    answer = await call("GET", path)
    assert answer.headers["Cache-Control"] == "no-cache"
    assert (await call("GET", path, headers={"If-None-Match": answer.headers["ETag"]})).status == 304


async def test_before_the_first_update_it_is_empty_and_says_so(call, submit):
    curve = (await call("GET", f"jobs/{(await submit()).json['id']}/curve")).json
    assert curve["train"] == curve["test"] == {"x": [], "loss": []}
    assert "no update yet" in curve["text"]


async def test_what_cannot_be_asked_for(call, trained):
    answer = await call("GET", f"jobs/{await trained(2)}/curve", params={"x": "epochs"})
    assert (answer.status, answer.json["field"]) == (400, "x")
    assert (await call("GET", "jobs/nobody/curve")).status == 404
