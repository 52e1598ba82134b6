"""Projects and the table of runs over REST. The runs are plain scripts that write their metrics: no torch."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.jupyter.conftest import multipart
from tests.jupyter.users import AsAnn
from tests.packages import packed
from tests.waiting import until_async

SCRIPT = b"""
import json, os, sys
from pathlib import Path
result = Path(os.environ["RESULT_DIR"])
(result / "model" / "train").mkdir(parents=True)
(result / "model" / "train" / "model_epoch_final.pth").write_text("w")
rate = float(sys.argv[sys.argv.index("--lr") + 1])
if rate != 5:
    entries = [{"step": 1, "loss": 9}, {"step": 2, "loss": rate * 2, "f1": 1 - rate}]
    (result / "val_dict_list.json").write_text(json.dumps(entries))
"""
LABELS = {"project": "mnist ä", "experiment": "rates"}


@pytest.fixture
def run(submit):
    """Submit a run of the experiment, and return its id."""

    async def send(*args, **changes):
        sent = await submit({"train.py": SCRIPT}, framework="PyTorch", args=args, **{**LABELS, **changes})
        assert sent.status == 201, sent.body
        return sent.json["id"]

    return send


@pytest.fixture
def runs(call):
    async def ask(project="mnist ä", **params):
        return await call("GET", f"projects/{project}/runs", params=params)

    return ask


async def all_ended(call):
    async def look():
        jobs = (await call("GET", "jobs", params={"trials": 1})).json["jobs"]
        return all(job["state"] == "FINISHED" for job in jobs)

    await until_async(look, "the end of all runs")


async def test_runs_are_compared_in_one_table(run, runs, call):
    assert (await call("GET", "projects")).json == {"projects": []}
    nothing = await runs()
    assert (nothing.status, nothing.json["field"]) == (404, "project")
    first = await run("--lr", "0.25", "--epochs=2", seed=3, tags=["good"])
    other = await run("--lr", "0.5", "--epochs=2", "--amp", name="another", seed=3)
    fails = await run("--lr", "5", "--epochs=2", seed=3, notes="no metrics")
    await run("--lr", "1", experiment="")
    await run("--lr", "1", experiment="sizes")
    await all_ended(call)
    await call("POST", "versions", body={"job": first, "name": "digits", "alias": "champion"})

    (project,) = (await call("GET", "projects")).json["projects"]
    assert (project["name"], project["runs"]) == ("mnist ä", 5)
    assert {each["name"]: each["runs"] for each in project["experiments"]} == {"sizes": 1, "rates": 3}
    assert project["changed"] == max(job["state_since"] for job in (await call("GET", "jobs")).json["jobs"])

    table = (await runs(experiment="rates")).json
    assert (table["project"], table["experiment"], table["total"]) == ("mnist ä", "rates", 3)
    assert [row["job"] for row in table["rows"]] == [fails, other, first]
    named = {
        kind: [each["name"] for each in table["columns"] if each["kind"] == kind] for kind in ("argument", "metric")
    }
    assert named == {"argument": ["lr", "epochs", "amp"], "metric": ["loss", "f1"]}
    row = next(row for row in table["rows"] if row["job"] == first)
    view = (await call("GET", f"jobs/{first}")).json
    assert row == {
        **{"job": first, "name": "test job", "state": "FINISHED", "lr": 0.25, "epochs": 2, "loss": 0.5, "f1": 0.75},
        **{"duration": round(view["ended"] - view["started"], 3), "started": view["started"], "max_workers": 1},
        **{"seed": 3, "owner": view["owner"], "tags": ["good"], "versions": ["digits/1"]},
    }
    assert table["same"].items() >= {"state": "FINISHED", "epochs": 2, "max_workers": 1, "seed": 3}.items()
    assert not {"job", "name", "lr", "amp", "loss"} & table["same"].keys()

    async def order(**params):
        return [row["job"] for row in (await runs(experiment="rates", **params)).json["rows"]]

    assert await order(sort="lr") == [first, other, fails]
    assert await order(sort="f1", desc=1) == [first, other, fails]
    assert await order(sort="f1") == [other, first, fails]
    assert await order(sort="lr", desc=1, limit=1) == [fails]
    assert len((await runs()).json["rows"]) == 5, "of all experiments and of none"
    assert {row.get("experiment") for row in (await runs()).json["rows"]} == {"rates", "sizes", None}

    sheet = await runs(experiment="rates", sort="lr", format="csv")
    assert sheet.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert sheet.headers["Content-Disposition"].endswith("mnist%20%C3%A4-rates.csv")
    lines = list(csv.DictReader(io.StringIO(sheet.body.decode())))
    assert [(line["job"], line["lr"], line["amp"], line["f1"]) for line in lines] == [
        (first, "0.25", "", "0.75"), (other, "0.5", "True", "0.5"), (fails, "5", "", ""),
    ]  # fmt: skip

    for wrong, field in ({"sort": "lrr"}, "sort"), ({"format": "xml"}, "format"), ({"limit": 0}, "limit"):
        refused = await runs(**wrong)
        assert (refused.status, refused.json["field"]) == (400, field)
    unknown = await runs(experiment="rate")
    assert (unknown.status, unknown.json["field"], unknown.json["hint"]) == (404, "experiment", "Did you mean 'rates'?")
    assert (await call("GET", "projects/mnist/runs")).json["message"] == "No run is in a project 'mnist'."

    # What is known of a run that has ended is not read again, but for what people say about it.
    await call("PATCH", f"jobs/{first}", body={"tags": ["best"]})
    await call("PATCH", f"jobs/{fails}", body={"experiment": "sizes"})
    table = (await runs(experiment="rates", sort="lr")).json
    assert [(row["job"], row.get("tags"), row["f1"]) for row in table["rows"]] == [
        (first, ["best"], 0.75),
        (other, None, 0.5),
    ]


async def test_trials_are_runs_with_their_values_and_validations_are_none(call, runs, submit):
    job = {
        "name": "s",
        "main": "train.py",
        "max_workers": 1,
        "framework": "PyTorch",
        "args": ["--lr", "{lr}"],
        **LABELS,
    }
    space = {"lr": {"kind": "uniform", "low": 0, "high": 1}, "width": {"kind": "choice", "values": [32, 64]}}
    points = [{"lr": 0.5, "width": 32}, {"lr": 0.25, "width": 64}]
    spec = {"metric": "loss", "algorithm": "list", "space": space, "points": points, "job": job}
    body, kind = multipart(("spec", json.dumps(spec).encode()), ("package", packed({"train.py": SCRIPT})))
    made = await call("POST", "searches", body=body, headers={"Content-Type": kind})
    assert made.status == 201, made.body

    async def look():
        return (await call("GET", f"searches/{made.json['id']}")).json["state"] == "FINISHED"

    await until_async(look, "the end of the search")
    await all_ended(call)
    table = (await runs(experiment="rates", sort="lr")).json
    assert [(row["lr"], row["width"], row["loss"]) for row in table["rows"]] == [(0.25, 64, 0.5), (0.5, 32, 1.0)]


class TestSomebodyElse(AsAnn):
    async def test_has_projects_of_their_own(self, run, runs, call):
        mine = await run("--lr", "1")
        bob = {"Authorization": "token bob-secret"}
        assert (await call("GET", "projects", headers=dict(bob))).json == {"projects": []}
        theirs = await call("GET", "projects/mnist ä/runs", headers=dict(bob))
        assert (theirs.status, mine in theirs.body.decode()) == (404, False)
        listed = await call("GET", "jobs", params={"all": 1}, headers=dict(bob))
        (public,) = listed.json["jobs"]
        assert (public["id"], public["project"], public["experiment"]) == (mine, "", "")
        found = await call("GET", "jobs", params={"all": 1, "project": LABELS["project"]}, headers=dict(bob))
        assert found.json == {"jobs": []}
