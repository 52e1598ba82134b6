"""Data sets and models over REST: JSON, uploads, and what the Jupyter server's own files are good for."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from tests.jupyter.conftest import multipart
from tests.packages import packed
from tests.sandboxes import needs_bubblewrap
from tests.waiting import until_async

SCRIPT = b"import os, sys\nprint(sys.argv[1:], os.environ.get('DATA_DIR'), flush=True)\n"


@pytest.fixture
def data_fs(tmp_path):
    (tmp_path / "shared" / "mnist").mkdir(parents=True)
    (tmp_path / "shared" / "mnist" / "a.csv").write_text("1\n")
    return tmp_path / "shared"


@pytest.fixture
def edt_config(data_fs):
    return {"data_fs": str(data_fs)}


@pytest.fixture
def add(call):
    """POST an upload to /datasets or /models."""

    async def send(path, spec, content, filename):
        boundary = "XXX"
        body = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="spec"\r\n\r\n{json.dumps(spec)}\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="package"; filename="{filename}"\r\n\r\n'
        ).encode()
        body += content + f"\r\n--{boundary}--\r\n".encode()
        return await call(
            "POST", path, body=body, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"}
        )

    return send


def zipped(files):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as out:
        for name, content in files.items():
            out.writestr(name, content)
    return raw.getvalue()


async def finished(call, job):
    async def ended():
        view = (await call("GET", f"jobs/{job}")).json
        return view if view["state"] in ("FINISHED", "FAILED", "KILLED", "ERROR") else None

    view = await until_async(ended, "the job's end")
    log = (await call("GET", f"jobs/{job}/logs")).json
    assert view["state"] == "FINISHED", (view, log)
    return "".join(line["text"] + "\n" for line in log["lines"])


async def test_from_a_data_set_and_a_model_to_a_training(call, add, data_fs):
    assert (await call("GET", "datasets")).json == {
        "datasets": [],
        "types": [
            "Any",
            "CSV",
            "ImageClassification",
            "ObjectDetection",
            "ImageToVector",
            "LMDB",
            "TFRecords",
            "Other",
        ],
        "data_folder": str(data_fs),
    }
    made = await call("POST", "datasets", body={"name": "digits", "path": "mnist"})
    assert (made.status, made.json["place"], made.json["mode"]) == (201, str(data_fs / "mnist"), "reference")
    model = await add("models", {"name": "net", "framework": "PyTorch"}, zipped({"go.py": SCRIPT}), "net.zip")
    assert (model.status, model.json["main"], model.json["origin"]) == (201, "go.py", "upload net.zip")
    changed = await call("PATCH", "models/net", body={"dataset": "digits", "args": ["a b"]})
    assert (changed.status, changed.json["dataset"]) == (200, "digits")
    listed = (await call("GET", "models")).json
    assert [each["name"] for each in listed["models"]] == ["net"]
    assert "edtPyTorch" in listed["frameworks"]
    assert "epochs" in listed["hyperparameters"]

    job = await call("POST", "models/net/train", body=b"")
    assert (job.status, job.json["model"], job.json["dataset"]) == (201, "net", "digits")
    assert job.headers["Location"].endswith(f"/edt/api/jobs/{job.json['id']}")
    assert f"['a b'] {data_fs}/mnist" in await finished(call, job.json["id"])
    details = (await call("GET", "models/net")).json
    assert [each["id"] for each in details["trainings"]] == [job.json["id"]]
    assert {"name": "go.py", "size": len(SCRIPT)} in details["files"]
    assert (await call("GET", "datasets/digits")).json["jobs"][0]["id"] == job.json["id"]

    assert (await call("DELETE", "models/net")).status == 204
    assert (await call("DELETE", "datasets/digits")).status == 204
    assert (await call("GET", "models/net")).status == 404


@pytest.mark.parametrize(
    ("filename", "content", "files"),
    [
        ("d.zip", zipped({"x/y": b"1"}), ["x/y"]),
        ("d.tar.gz", packed({"x/y": b"1"}), ["x/y"]),
        ("mnist.npz", zipped({"x": b"1"}), ["mnist.npz"]),
    ],
    ids=["zip", "tar", "file"],  # an archive knows when it was made: it names no test
)
async def test_a_data_set_is_uploaded(call, add, filename, content, files):
    made = await add("datasets", {"name": "digits", "type": "LMDB"}, content, filename)
    assert (made.status, made.json["mode"], made.json["type"]) == (201, "copy", "LMDB")
    assert [each["name"] for each in (await call("GET", "datasets/digits")).json["files"]] == files


async def test_the_servers_own_files_are_packed(call, jp_root_dir):
    folder = jp_root_dir / "project"
    (folder / "data" / ".hidden").mkdir(parents=True)
    (folder / "data" / "a.bin").write_bytes(b"12")
    (folder / "data" / ".hidden" / "b").write_bytes(b"3")
    (folder / "run.py").write_bytes(SCRIPT)
    made = await call("POST", "datasets", body={"name": "digits", "source": "project/data"})
    assert (made.status, made.json["mode"], made.json["files"]) == (201, "copy", 2)
    model = await call(
        "POST", "models", body={"name": "net", "source": "project", "framework": "PyTorch", "dataset": "digits"}
    )
    assert (model.status, model.json["main"]) == (201, "run.py")
    job = await call("POST", "models/net/train", body={"args": ["x"], "name": "mine"})
    assert (job.status, job.json["name"]) == (201, "mine")
    assert f"['x'] {made.json['place']}" in await finished(call, job.json["id"])
    assert made.json["place"] in (await call("GET", "datasets/digits")).json["dataset"]["place"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field", "text"),
    [
        ("POST", "datasets", b"{", 400, None, "JSON"),
        ("POST", "datasets", b"[]", 422, None, "object"),
        ("POST", "datasets", {"name": "x", "path": "nothing"}, 404, "path", "There is no nothing"),
        ("POST", "datasets", {"name": "x", "path": "/etc"}, 400, "path", "outside"),
        ("POST", "datasets", {"name": "x", "colour": "red"}, 422, "colour", "colour"),
        ("POST", "datasets", {"name": "x"}, 400, "path", "upload or from a path"),
        ("POST", "datasets", {"name": 5, "path": "mnist"}, 422, "name", "name"),
        ("POST", "datasets", {"name": "x", "source": "../etc"}, 404, "source", "no file or folder"),
        ("POST", "datasets", {"name": "x", "source": "no/where"}, 404, "source", "no file or folder"),
        ("POST", "datasets", {"name": "x", "source": 5}, 400, "source", "path"),
        ("POST", "datasets", {"name": "x/y", "source": ""}, 400, "name", "no name"),
        ("POST", "datasets", {"name": "x", "source": "a", "path": "b"}, 400, "source", "once"),
        ("GET", "datasets/none", None, 404, "dataset", "no data set 'none'"),
        ("DELETE", "datasets/none", None, 404, "dataset", "no data set"),
        ("POST", "models", {"name": "x", "path": "mnist"}, 400, "main", "no .py file"),
        ("POST", "models", {"name": "x", "template": "none"}, 404, "template", "no template 'none'"),
        ("POST", "models", {"name": "x", "source": "nowhere"}, 404, "source", "no file or folder"),
        ("POST", "models", {"name": "x", "path": "mnist", "max_workers": "two"}, 422, "max_workers", "whole number"),
        ("PATCH", "models/none", {"max_workers": 2}, 404, "model", "no model"),
        ("PATCH", "models/none", {}, 400, None, "Nothing to change"),
        ("GET", "models/none?kind=job", None, 400, "kind", "'model' or 'template'"),
        ("DELETE", "models/none", None, 404, "model", "no model"),
        ("POST", "models/none/train", {}, 404, "model", "no model"),
        ("POST", "models/none/train", {"priority": "high"}, 422, "priority", "whole number"),
    ],
)
async def test_bad_input_says_what_is_wrong(call, method, path, body, status, field, text):
    path, _, query = path.partition("?")
    answer = await call(method, path, body=body, params=dict([query.split("=")]) if query else None)
    assert (answer.status, answer.json.get("field")) == (status, field), answer.json
    assert text in answer.json["message"], answer.json
    assert (await call("GET", "datasets")).json["datasets"] == []
    assert (await call("GET", "models")).json["models"] == []


class TestSmall:
    """A server that accepts little."""

    @pytest.fixture
    def edt_config(self, data_fs):
        return {"data_fs": str(data_fs), "max_upload_bytes": 1000}

    async def test_an_upload_over_the_cap(self, call, add, tmp_path, jp_root_dir):
        answer = await add("datasets", {"name": "x"}, bytes(3 << 20), "x.bin")
        assert (answer.status, answer.json["code"]) == (413, "too_large")
        (jp_root_dir / "big").mkdir()
        (jp_root_dir / "big" / "x.bin").write_bytes(__import__("os").urandom(5000))
        answer = await call("POST", "datasets", body={"name": "x", "source": "big"})
        assert (answer.status, answer.json["code"]) == (413, "too_large")
        assert (await call("GET", "datasets")).json["datasets"] == []
        assert [path for path in (tmp_path / "edt" / "uploads").iterdir()] == []

    async def test_json_without_end(self, call):
        answer = await call("POST", "datasets", body=b'{"name": "' + b"x" * (2 << 20) + b'"}')
        assert (answer.status, answer.json["code"]) == (413, "too_large")


async def test_a_job_of_a_data_set(call, submit, data_fs):
    await call("POST", "datasets", body={"name": "digits", "path": "mnist", "copy": True})
    job = (await submit({"train.py": SCRIPT}, dataset="digits", framework="PyTorch")).json
    assert job["dataset"] == "digits"
    assert "/catalogue/" in await finished(call, job["id"])
    both = await submit({"train.py": SCRIPT}, dataset="digits", data_path="mnist")
    assert (both.status, both.json["field"]) == (400, "dataset")
    none = await submit({"train.py": SCRIPT}, dataset="letters")
    assert (none.status, none.json["field"]) == (404, "dataset")


async def test_a_part_that_is_missing(call):
    body, content_type = multipart(("spec", b'{"name": "x"}'))
    answer = await call("POST", "models", body=body, headers={"Content-Type": content_type})
    assert (answer.status, answer.json["field"]) == (400, "package")
    answer = await call("POST", "models", body=b"x", headers={"Content-Type": "text/plain"})
    assert answer.status == 400


class TestOfAnAccount:
    @pytest.fixture
    def edt_config(self):
        needs_bubblewrap(users=False)
        return {"isolation": "account", "account_of": lambda _: 1}

    async def test_a_job_reads_the_data_set_that_its_user_has_uploaded(self, call, add, submit):
        made = await add("datasets", {"name": "digits"}, zipped({"a.csv": "of ann"}), "digits.zip")
        assert made.status == 201, made.json
        script = b"import os\nprint(os.getuid(), open(os.environ['DATA_DIR'] + '/a.csv').read())\n"
        job = await submit({"train.py": script}, framework="PyTorch", dataset="digits")
        assert "1 of ann" in await finished(call, job.json["id"])
