"""A stretch of the loss: what can be asked for, and what a picture says where there is nothing in it."""

from __future__ import annotations

import json
import re

import pytest

from edt_sdk.schemas.wire.paths import JobPaths


@pytest.fixture
def trained(call, submit, tmp_path):
    """A job with the metrics of a hundred updates, four samples each, two a second."""

    async def make():
        view = (await submit()).json
        paths = JobPaths(tmp_path / "edt", view["owner"], view["id"])
        lines = [
            {"kind": "train", "update": at, "epoch": 0, "samples": 4, "loss": 1 / (1 + at), "world": 1, "time": at / 2}
            for at in range(100)
        ]
        paths.metrics(0).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return view["id"]

    return make


async def test_what_it_may_be(call, trained):
    job = await trained()

    async def drawn(**asked):
        answer = await call("GET", f"jobs/{job}/pictures/loss", params=asked)
        assert answer.status == 200, answer.json
        said = re.search(rb'data-across="([^"]*)"', answer.body)
        return answer.body if said is None else tuple(map(float, said[1].split()))[2:]

    assert await drawn() == (4, 400)
    assert await drawn(start="40", end="80") == (40, 80)
    assert await drawn(start="40") == (40, 400)
    assert await drawn(end="80") == (4, 80)
    assert await drawn(start="10", end="20", x="time") == (10, 20)
    assert b"there are fewer than two updates in this stretch" in await drawn(start="500", end="600")

    for asked, field in (({"start": "5", "end": "5"}, "end"), ({"start": "x"}, "start")):
        answer = await call("GET", f"jobs/{job}/pictures/loss", params=asked)
        assert (answer.status, answer.json["field"]) == (400, field)


async def test_before_the_first_update_there_is_none(call, submit):
    job = (await submit()).json["id"]
    answer = await call("GET", f"jobs/{job}/pictures/loss", params={"start": "5", "end": "6"})
    assert answer.status == 200
    assert b"No update yet" in answer.body or b"no update yet" in answer.body
