"""Pictures over HTTP: SVG with an ETag, a sentence where there is nothing to draw yet, a clear refusal of nonsense."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from edt_jupyter.api.pictures import JOB_PICTURES, MACHINE_PICTURES
from tests.waiting import until_async


def says(answer):
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "image/svg+xml; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-cache"
    return ElementTree.fromstring(answer.body).get("aria-label")


@pytest.fixture
def curve(edt):
    """Write a training's metrics for a job, as soon as it has a folder: its launcher makes that."""

    async def write(view, updates, *, training=0):
        folder = edt.service.paths(view).job_dir
        await until_async(folder.is_dir, "the job's folder")
        lines = (
            {
                "kind": "train",
                "update": u,
                "epoch": 0,
                "samples": 64,
                "loss": 2 / (1 + u),
                "world": 1 + u // 50,
                "time": 1e9 + u,
            }
            for u in range(updates)
        )
        (folder / f"training-{training}.metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return write


async def job_of(edt, answer):
    return await edt.service.mine(answer.json["owner"], answer.json["id"])


@pytest.mark.parametrize("picture", [name for name in MACHINE_PICTURES if name != "compare"])
async def test_of_an_empty_machine(call, picture):
    assert says(await call("GET", f"pictures/{picture}"))


@pytest.mark.parametrize("picture", JOB_PICTURES)
async def test_of_a_job_that_has_not_begun(submit, call, picture):
    job = (await submit(name="sleeper")).json["id"]
    assert "sleeper" in says(await call("GET", f"jobs/{job}/pictures/{picture}"))


async def test_of_a_training(submit, call, edt, curve):
    first, second = await submit(name="one"), await submit(name="two")
    for answer in (first, second):
        await curve(await job_of(edt, answer), 100)
    job, other = first.json["id"], second.json["id"]
    text = says(
        await call("GET", f"jobs/{job}/pictures/loss", params={"x": "time", "smooth": 0.4, "zone": "Asia/Tokyo"})
    )
    assert text == "one: training loss from 2 to 0.02, computed by 1 to 2 workers."
    assert "2 workers" in says(await call("GET", f"jobs/{job}/pictures/efficiency"))
    assert "loss 0.02" in says(await call("GET", f"jobs/{job}/pictures/spark"))
    assert "one" in says(await call("GET", f"jobs/{job}/pictures/allocation"))
    assert "one 1" in says(await call("GET", "pictures/slots", params={"job": job}))
    assert "one" in says(await call("GET", "pictures/timeline", params={"job": job}))
    assert "default holds 2" in says(await call("GET", "pictures/shares"))
    compared = says(await call("GET", "pictures/compare", params={"jobs": f"{job},{other}"}))
    assert compared == "Training loss at the end: one 0.02, two 0.02."


async def test_what_has_not_changed_is_not_sent_again(submit, call, edt, curve):
    answer = await submit()
    row = await job_of(edt, answer)
    await curve(row, 10)
    path = f"jobs/{row.id}/pictures/loss"
    etag = (await call("GET", path)).headers["ETag"]
    assert (await call("GET", path, headers={"If-None-Match": etag})).status == 304
    await curve(row, 20)
    again = await call("GET", path, headers={"If-None-Match": etag})
    assert again.status == 200
    assert again.headers["ETag"] != etag


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"theme": "pink"}, "theme"),
        ({"width": "7"}, "width"),
        ({"width": "wide"}, "width"),
        ({"x": "epochs"}, "x"),
        ({"y": "loglog"}, "y"),
        ({"smooth": "2"}, "smooth"),
        ({"smooth": "nan"}, "smooth"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"zone": "../../etc/passwd"}, "zone"),
        ({"zone": "+9999"}, "zone"),
        ({"zone": "+1x00"}, "zone"),
    ],
)
async def test_what_cannot_be_drawn_with(submit, call, query, field):
    job = (await submit()).json["id"]
    answer = await call("GET", f"jobs/{job}/pictures/loss", params=query)
    assert (answer.status, answer.json["code"], answer.json["field"]) == (400, "invalid_request", field)


@pytest.mark.parametrize("query", [{"start": "soon"}, {"end": "inf"}])
async def test_windows_that_are_none(call, query):
    answer = await call("GET", "pictures/timeline", params=query)
    assert (answer.status, answer.json["field"]) == (400, next(iter(query)))


async def test_a_window_that_is_far_away(submit, call):
    job = (await submit(name="sleeper")).json["id"]
    for start, end in ((0, 1), (9e11, 9.1e11), (-5, 4e12), (2e9, 1e9)):
        window = {"start": start, "end": end}
        assert says(await call("GET", "pictures/timeline", params=window))
        assert says(await call("GET", f"jobs/{job}/pictures/allocation", params=window))


async def test_there_is_no_such_picture_or_job(submit, call):
    job = (await submit()).json["id"]
    for path in (f"jobs/{job}/pictures/mona-lisa", "pictures/mona-lisa"):
        answer = await call("GET", path)
        assert (answer.status, answer.json["code"]) == (404, "not_found")
        assert "There are" in answer.json["hint"]
    for path in ("jobs/nobody/pictures/loss", "pictures/compare?jobs=nobody", "pictures/slots?job=nobody"):
        path, _, query = path.partition("?")
        params = dict([query.split("=")]) if query else None
        assert (await call("GET", path, params=params)).status == 404
    for jobs in ("", ",", "a,b,c,d,e,f"):
        answer = await call("GET", "pictures/compare", params={"jobs": jobs})
        assert (answer.status, answer.json["field"]) == (400, "jobs")
