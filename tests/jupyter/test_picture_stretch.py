"""A stretch of the loss: what can be asked for, and what a picture says where there is nothing in it."""

from __future__ import annotations

import pytest

HALF = "A stretch of the loss begins at start and ends at a later end."


@pytest.mark.parametrize(
    ("asked", "field"),
    [({"start": "5"}, "end"), ({"end": "5"}, "start"), ({"start": "5", "end": "5"}, "end"), ({"start": "x"}, "start")],
)
async def test_half_a_stretch_is_refused(call, submit, asked, field):
    job = (await submit()).json["id"]
    answer = await call("GET", f"jobs/{job}/pictures/loss", params=asked)
    assert (answer.status, answer.json["field"]) == (400, field)
    if field != "start" or "end" in asked:
        assert answer.json["message"] == HALF


async def test_where_no_update_is_the_picture_says_so(call, submit):
    job = (await submit()).json["id"]
    answer = await call("GET", f"jobs/{job}/pictures/loss", params={"start": "5", "end": "6"})
    assert answer.status == 200
    assert b"there are fewer than two updates in this stretch" in answer.body
