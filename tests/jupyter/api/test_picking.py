"""Previews and submissions of this server's own files: what is packed, what is refused, and where it may not lead."""

from __future__ import annotations

import json
import os

import pytest

from tests.waiting import until_async

TRAIN = "# FabricModel\nimport helper\nprint(helper.WORD)\n"
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [
        {"cell_type": "code", "metadata": {}, "source": ["plot = 1\n"], "outputs": [], "execution_count": None},
        {
            "cell_type": "code",
            "metadata": {"tags": ["edt"]},
            "source": ["# FabricModel\n", "import helper\n", "print(1)"],
            "outputs": [],
        },
        {"cell_type": "code", "metadata": {"tags": ["edt"]}, "source": "%matplotlib inline\nx = 2", "outputs": []},
        {"cell_type": "markdown", "metadata": {"tags": ["edt"]}, "source": "# text"},
    ],
}


@pytest.fixture
def files(jp_root_dir):
    """A user's files: a folder `work/digits` with a script and a helper, and a notebook beside it."""
    folder = jp_root_dir / "work" / "digits"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "helper.py").write_text("WORD = 'hello'\n")
    (folder / ".secret").write_text("x")
    (folder / "digits.ipynb").write_text(json.dumps(NOTEBOOK))
    return jp_root_dir


def names(answer):
    helpers = {"edtcallback.py", "elog.py", "emetrics.py"}
    return [file["name"] for file in answer.json["files"] if file["name"] not in helpers]


class TestPreview:
    async def test_of_a_folder(self, call, files):
        answer = await call("POST", "previews", body={"source": "work/digits", "spec": {"max_workers": 2}})
        assert answer.status == 200, answer.json
        assert names(answer) == ["digits.ipynb", "helper.py", "train.py"]
        assert (answer.json["name"], answer.json["main"]) == ("digits", "train.py")
        assert answer.json["size"] == sum(file["size"] for file in answer.json["files"])
        assert answer.json["notes"] == [".secret is left out: hidden files are not served here"]
        assert answer.json["forecast"]["code"] == "now"
        assert (answer.json["forecast"]["start_low"], answer.json["forecast"]["start_high"]) == (0, 0)
        assert (await call("GET", "jobs")).json == {"jobs": []}

    async def test_of_a_misspelled_path(self, call, files):
        (files / "away").symlink_to("/")
        for source, hint in (
            ("work/digit", "Did you mean 'work/digits'?"),
            ("wrk/digits", "Did you mean 'work'?"),
            ("work/digits/tran.py", "Did you mean 'work/digits/train.py'?"),
            ("work/digits/secret", ""),
            ("away/ect", ""),
        ):
            answer = await call("POST", "previews", body={"source": source, "spec": {}})
            assert (answer.status, answer.json["field"]) == (404, "source")
            assert answer.json["hint"] == (
                hint or "Give its path as the file browser shows it, from the top folder on."
            )

    async def test_of_a_script_with_what_it_imports(self, call, files):
        answer = await call("POST", "previews", body={"source": "/work/digits/train.py", "spec": {"max_workers": 1}})
        assert names(answer) == ["helper.py", "train.py"]

    @pytest.mark.parametrize(("tag", "size"), [(None, 3), ("edt", 2)])
    async def test_of_a_notebook(self, call, files, tag, size):
        body = {"source": "work/digits/digits.ipynb", "tag": tag, "spec": {"max_workers": 1, "name": "mine"}}
        answer = await call("POST", "previews", body=body)
        assert names(answer) == ["helper.py", "main.py"]
        assert answer.json["name"] == "mine"
        assert answer.json["notes"] == [f"cell {size}: not run in a job: %matplotlib inline"]

    async def test_a_job_that_can_never_run_is_told_so(self, call, files):
        spec = {"max_workers": 3, "min_workers": 3}
        answer = await call("POST", "previews", body={"source": "work/digits", "spec": spec})
        forecast = answer.json["forecast"]
        assert (answer.status, forecast["code"], forecast["start_low"], forecast["start_high"]) == (
            200,
            "never",
            None,
            None,
        )
        assert "It needs 3 slots at once" in forecast["text"]

    @pytest.mark.parametrize("edt_config", [{"max_package_files": 4}])
    async def test_many_files_are_refused_as_an_upload_would_be(self, call, files, edt_config):
        (files / "work" / "digits" / "more.py").write_text("")
        (files / "work" / "digits" / "much.py").write_text("")
        answer = await call("POST", "previews", body={"source": "work/digits", "main": "train.py"})
        assert (answer.status, answer.json["code"], answer.json["field"]) == (413, "too_large", "source")

    @pytest.mark.parametrize("edt_config", [{"max_package_bytes": 10}])
    async def test_so_are_many_bytes(self, call, files, edt_config):
        answer = await call("POST", "previews", body={"source": "work/digits"})
        assert (answer.status, answer.json["code"], answer.json["field"]) == (413, "too_large", "source")


class TestRefused:
    @pytest.mark.parametrize("where", ["previews", "submissions"])
    @pytest.mark.parametrize(
        ("body", "status", "field"),
        [
            ({}, 400, "source"),
            ({"source": 3}, 400, "source"),
            ({"source": "work/digits", "surce": ""}, 400, "source"),
            ({"source": "nowhere"}, 404, "source"),
            ({"source": "../" * 9 + "etc/passwd"}, 404, "source"),
            ({"source": "work/digits/../../.."}, 404, "source"),
            ({"source": "work/digits/.secret"}, 404, "source"),
            ({"source": "work/digits/\0"}, 404, "source"),
            ({"source": "work/digits", "main": "other.py"}, 400, "main"),
            ({"source": "work/digits", "main": "../train.py"}, 400, "main"),
            ({"source": "work/digits/digits.ipynb", "tag": "other"}, 400, "tag"),
            ({"source": "work/digits", "spec": {"main": "train.py"}}, 400, "spec"),
            ({"source": "work/digits", "spec": {"max_workers": "many"}}, 400, "max_workers"),
            ({"source": "work/digits", "spec": {"max_workers": 0}}, 422, "max_workers"),
            ({"source": "work/digits", "spec": {"max_workers": 1, "priority": 0}}, 422, "priority"),
            ({"source": "work/digits", "spec": {"max_workers": 1, "instance_group": "no"}}, 422, "instance_group"),
        ],
    )
    async def test_with_a_sentence_at_its_field(self, call, files, leftovers, where, body, status, field):
        answer = await call("POST", where, body=body)
        assert (answer.status, answer.json["field"]) == (status, field), answer.json
        assert len(answer.json["message"]) > 10
        assert "Traceback" not in answer.json["message"]
        assert leftovers() == []

    @pytest.mark.parametrize("where", ["previews", "submissions"])
    @pytest.mark.parametrize(
        ("text", "status", "field", "sentence"),
        [
            ("x = (\n", 400, "source", "train.py, line 1 is not Python"),
            ("import torch\n", 422, "framework", 'framework="PyTorch"'),
        ],
    )
    async def test_a_script_that_cannot_run(self, call, files, leftovers, where, text, status, field, sentence):
        (files / "work" / "digits" / "train.py").write_text(text)
        answer = await call("POST", where, body={"source": "work/digits", "spec": {"max_workers": 1}})
        assert (answer.status, answer.json["field"]) == (status, field), answer.json
        assert sentence in f"{answer.json['message']} {answer.json['hint']}"
        assert leftovers() == []
        assert (await call("GET", "jobs", params={"all": 1})).json == {"jobs": []}

    @pytest.mark.parametrize("where", ["previews", "submissions"])
    async def test_links_that_lead_out(self, call, files, tmp_path, where):
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "train.py").write_text("print('not yours')\n")
        os.symlink(outside, files / "work" / "link")
        os.symlink(outside / "train.py", files / "work" / "digits" / "inside.py")
        answer = await call("POST", where, body={"source": "work/link", "spec": {"max_workers": 1}})
        assert (answer.status, answer.json["field"]) == (400, "source")
        assert "leads out" in answer.json["message"]
        answer = await call("POST", where, body={"source": "work/digits", "spec": {"max_workers": 1}})
        assert (answer.status, answer.json["field"]) == (400, "source")
        assert "inside.py" in answer.json["message"]

    async def test_a_hidden_folder(self, call, files):
        (files / ".hidden").mkdir()
        (files / ".hidden" / "train.py").write_text("")
        for source in (".hidden", ".hidden/train.py"):
            assert (await call("POST", "previews", body={"source": source})).status == 404


class TestHiddenFilesAllowed:
    @pytest.fixture
    def jp_server_config(self, jp_server_config):
        jp_server_config["ContentsManager"] = {"allow_hidden": True}
        return jp_server_config

    async def test_they_are_packed(self, call, files):
        answer = await call("POST", "previews", body={"source": "work/digits", "spec": {"max_workers": 1}})
        assert names(answer) == [".secret", "digits.ipynb", "helper.py", "train.py"]


async def test_a_submission_is_a_job_like_any_other(call, files, leftovers):
    body = {"source": "work/digits", "spec": {"max_workers": 1, "framework": "PyTorch", "args": ["--x"]}}
    answer = await call("POST", "submissions", body=body)
    assert answer.status == 201, answer.json
    job = answer.json["id"]
    assert answer.headers["Location"].endswith(f"/edt/api/jobs/{job}")
    assert (answer.json["name"], answer.json["main"], answer.json["args"]) == ("digits", "train.py", ["--x"])

    async def ended():
        return (await call("GET", f"jobs/{job}")).json["state"] == "FINISHED"

    await until_async(ended, "the job's end")
    lines = (await call("GET", f"jobs/{job}/logs")).json["lines"]
    assert "hello" in [line["text"] for line in lines]
    assert not [name for name in leftovers() if name.startswith("uploads")]


async def test_a_forecast_of_a_specification(call):
    answer = await call("POST", "forecasts", body={"name": "x", "main": "train.py", "max_workers": 2})
    assert answer.status == 200
    assert answer.json == {
        "code": "now",
        "text": "It would start at once, on 1 of 2 slots (2 are free), and grow to 2 as soon as it trains.",
        "start_low": 0.0,
        "start_high": 0.0,
        "slots": 2,
    }
    assert (await call("POST", "forecasts", body={"name": "x", "main": "t.py", "max_workers": 0})).status == 422


SEARCH = {"space": "lr=0.1|0.2|0.3", "metric": "loss", "algorithm": "grid", "epochs": 2}


class TestSearch:
    async def test_is_previewed_and_started_of_a_folder_and_of_a_job(self, call, files):
        body = {"source": "work/digits", "spec": {"max_workers": 2, "args": ["{lr}"]}, "search": SEARCH}
        seen = await call("POST", "previews", body=body)
        assert seen.status == 200, seen.json
        assert names(seen) == ["digits.ipynb", "helper.py", "train.py"]
        assert seen.json["forecast"]["text"].startswith("3 trials, 6 epochs. ")
        started = await call("POST", "searches/submissions", body=body)
        assert started.status == 201, started.json
        assert (started.json["spec"]["trials"], started.json["spec"]["job"]["name"]) == (3, "digits")
        search = started.json["id"]
        assert (await call("GET", f"searches/{search}")).json["spec"]["space"]["lr"]["values"] == [0.1, 0.2, 0.3]
        assert (await call("POST", f"searches/{search}/stop")).status == 202
        job = (await call("POST", "submissions", body={"source": "work/digits", "spec": {"max_workers": 1}})).json["id"]
        other = {"source": {"job": job}, "spec": {"name": "other"}, "search": SEARCH}
        assert (await call("POST", "previews", body=other)).json["forecast"]["text"].startswith("3 trials, 6 epochs. ")
        again = await call("POST", "searches/submissions", body=other)
        assert (again.status, again.json["spec"]["job"]["name"]) == (201, "other")

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"space": "lr=log(1,0)"}, "space.lr"),
            ({"trails": 3}, "trails"),
            ({"space": 3}, "space"),
            ({"metric": ""}, "metric"),
            ({"trials": "many"}, "trials"),
            ({"job": {}}, "job"),
        ],
    )
    async def test_what_is_wrong_is_said_of_its_field_and_starts_nothing(self, call, files, changes, field):
        body = {"source": "work/digits", "spec": {"max_workers": 1}, "search": {**SEARCH, **changes}}
        for path in ("previews", "searches/submissions"):
            answer = await call("POST", path, body=body)
            assert answer.status in (400, 422)
            assert answer.json["field"] == field
        assert (await call("GET", "searches")).json == {"searches": []}

    async def test_a_job_is_no_search_and_a_search_needs_settings(self, call, files):
        source = {"source": "work/digits", "spec": {}}
        for path, body in (("submissions", {**source, "search": SEARCH}), ("searches/submissions", source)):
            answer = await call("POST", path, body=body)
            assert (answer.status, answer.json["field"]) == (400, "search")
