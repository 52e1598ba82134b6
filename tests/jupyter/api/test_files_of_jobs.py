"""A job puts a FIFO, a device or a link where the server reads its files: every request is answered all the same."""

from __future__ import annotations

import asyncio
import os

import pytest
from tornado.httpclient import HTTPClientError

from edt_sdk.schemas.wire.regular import open_regular, read_regular, regular_files
from tests.jupyter.users import AsAnn
from tests.sandboxes import needs_bubblewrap
from tests.waiting import until_async

SECRET = "what only the server may read"
SCRIPT = """
import os, pathlib, stat
secret, kind = SECRET, KIND
result = pathlib.Path(os.environ["RESULT_DIR"])
private = result.parents[3] / "jobs" / result.name

def put(path):
    try:
        replace(path)
    except OSError:
        if os.getuid() == SERVER:
            raise  # else it is not its own to replace

def replace(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    else:
        path.symlink_to(secret)

streams = private / "streams"
seen = streams.iterdir() if os.access(streams, os.R_OK) else [streams / "worker-0.stdout"]
for path in [*seen, *(result / "log").glob("*/*")]:
    put(path)
for name in ("stdout", "stderr"):
    put(pathlib.Path(os.environ["LOG_DIR"]) / name)
put(result / "model/train/model_epoch_1.pth")
put(result / "checkpoint/training-0/epoch-1.ckpt")
put(result / "model/train/model_epoch_final.pth")
put(result / "validation.json")
names = "training-0.metrics.jsonl training-0.commits.jsonl streams.index.jsonl resume_from supervisor.log"
for name in names.split():
    put(private / name)
# Whatever else lies there, by any name.
for path in [*private.rglob("*"), *result.rglob("*")]:
    if path.is_file() and not path.is_symlink() and path.name not in ("train.py", "launch.json"):
        put(path)
"""
ASKED = ("logs", "metrics", "curve", "checkpoints", "validation", "workers", "result", "pictures/loss", "timeline", "")


FOLDERS = """
import os, pathlib
elsewhere = pathlib.Path(ELSEWHERE)
result = pathlib.Path(os.environ["RESULT_DIR"])
private = result.parents[3] / "jobs" / result.name
(result / "checkpoint/training-0").mkdir()
(result / "model/train").mkdir(exist_ok=True)
deep = DEEP.replace("NAME", os.path.basename(os.environ["LOG_DIR"]))
for number, folder in enumerate([result / deep, private / "streams"]):
    folder.rename(result.parent / f"{result.name}-{number}")
    folder.symlink_to(elsewhere)
"""


@pytest.mark.parametrize("deep", ["log", "log/NAME", "model", "model/train", "checkpoint", "checkpoint/training-0"])
async def test_a_link_in_the_place_of_a_folder_leads_nobody_out_of_the_job(submit, call, tmp_path, jp_fetch, deep):
    elsewhere = tmp_path / "elsewhere"
    for name in ("stdout", "driver.stdout", "worker-0.stdout", "worker-0.stderr", "model_epoch_7.pth", "epoch-7.ckpt"):
        for folder in (".", "train", "training-0"):
            place = elsewhere / folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"{SECRET}\n")
    script = FOLDERS.replace("ELSEWHERE", repr(str(elsewhere))).replace("DEEP", repr(deep)).encode()
    job = (await submit({"train.py": script}, framework="PyTorch")).json["id"]

    async def ended():
        view = (await call("GET", f"jobs/{job}")).json
        return view["state"] in ("FINISHED", "FAILED") and view

    view = await until_async(ended, "the end of the job")
    assert view["state"] == "FINISHED", view["message"]
    parts = [("result", {"part": part}) for part in ("model", "checkpoint", "log")]
    for asked, parameters in [*((asked, None) for asked in ASKED), *parts]:
        answer = await call("GET", f"jobs/{job}/{asked}", params=parameters)
        assert answer.status < 500, answer.json
        assert SECRET.encode() not in answer.body, asked
        assert b"epoch-7" not in answer.body, asked
        assert b"model_epoch_7" not in answer.body, asked
    wmla = await jp_fetch("platform/rest/deeplearning/v1/execs", job, "log")
    assert SECRET.encode() not in wmla.body
    other = await submit(warm_start=job)
    assert other.status == 422, other.json
    assert "no weights" in str(other.json)
    assert (await call("DELETE", f"jobs/{job}")).status in (200, 202, 204)
    result = tmp_path / "edt" / "results"
    await until_async(lambda: not list(result.glob(f"*/batchworkdir/{job}")), "the end of its files")
    assert len([place for place in elsewhere.rglob("*") if place.is_file()]) == 18


async def ended_job(submit, call, secret, kind):
    """A job that has put this in the place of all its files."""
    script = SCRIPT.replace("SECRET", repr(str(secret))).replace("KIND", repr(kind))
    script = script.replace("SERVER", str(os.getuid())).encode()
    job = (await submit({"train.py": script}, framework="PyTorch")).json["id"]

    async def ended():
        view = (await call("GET", f"jobs/{job}")).json
        return view["state"] in ("FINISHED", "FAILED", "ERROR") and view

    view = await until_async(ended, "the end of the job")
    assert view["state"] == "FINISHED", view["message"]
    return job


@pytest.mark.parametrize("kind", ["fifo", "link", "device"])
async def test_what_a_job_puts_in_the_place_of_its_files_stops_nobody(submit, call, tmp_path, jp_fetch, kind):
    if kind == "device" and os.getuid() != 0:
        pytest.skip("only root can make a device")
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    job = await ended_job(submit, call, secret, kind)
    answers = await asyncio.gather(*(call("GET", f"jobs/{job}/{asked}") for asked in ASKED for _ in range(3)))
    assert not [answer.json for answer in answers if answer.status >= 500]
    assert not [answer for answer in answers if SECRET.encode() in answer.body]
    wmla = await jp_fetch("platform/rest/deeplearning/v1/execs", job, "log")
    assert SECRET.encode() not in wmla.body
    for verb, asked, body in (("POST", "resume", {}), ("POST", "validations", {}), ("PATCH", "", {"notes": "x"})):
        answer = await call(verb, f"jobs/{job}/{asked}", body=body)
        assert answer.status < 500, (asked, answer.json)
    again = await call("POST", "submissions", body={"source": {"job": job}, "spec": {}})
    assert again.status < 500, again.json
    other = await submit(warm_start=job)
    assert other.status == 422, other.json
    assert (await call("GET", "jobs")).status == 200
    for each in (await call("GET", "jobs")).json["jobs"]:
        await call("POST", f"jobs/{each['id']}/stop", body=b"")
    assert (await call("DELETE", f"jobs/{job}")).status == 204
    assert secret.read_text() == f"{SECRET}\n"


class TestOfAnAccount(AsAnn):
    """The server is root, which may read everything, and the job is another account's."""

    @pytest.fixture
    def edt_config(self, tmp_path):
        needs_bubblewrap(users=False)
        (tmp_path / "shared" / "mnist").mkdir(parents=True)
        return {"isolation": "account", "account_of": lambda _: 1, "data_fs": str(tmp_path / "shared")}

    async def test_what_it_puts_in_the_place_of_its_files_shows_nothing(self, submit, call, tmp_path, jp_fetch):
        secret = tmp_path / "secret"
        secret.write_text(f"{SECRET}\n")
        secret.chmod(0o600)
        job = await ended_job(submit, call, secret, "link")
        result = next((tmp_path / "edt" / "results").glob(f"*/batchworkdir/{job}"))
        assert (result / "validation.json").is_symlink()
        assert (result / "validation.json").lstat().st_uid == 1
        assert not any(path.is_symlink() for path in (tmp_path / "edt" / "jobs" / job / "streams").iterdir())
        answers = [await call("GET", f"jobs/{job}/{asked}") for asked in ASKED]
        assert not [answer.json for answer in answers if answer.status >= 500]
        assert not [answer for answer in answers if SECRET.encode() in answer.body]
        assert SECRET.encode() not in (await jp_fetch("platform/rest/deeplearning/v1/execs", job, "log")).body
        assert (await submit(warm_start=job)).status == 422
        # What it cannot replace is root's: the package from which another job can be made.
        assert (tmp_path / "edt" / "jobs" / job / "package").lstat().st_uid == 0
        assert (await call("DELETE", f"jobs/{job}")).status in (200, 202, 204)
        await until_async(lambda: not result.exists(), "the end of its files")
        assert (secret.read_text(), secret.stat().st_uid) == (f"{SECRET}\n", 0)

    async def test_nothing_of_the_data_folder_is_read_for_a_user(self, call, tmp_path, jp_fetch):
        (tmp_path / "private").mkdir(mode=0o700)
        (tmp_path / "private" / "secret.csv").write_text(f"{SECRET}\n")
        (tmp_path / "shared" / "mnist" / "more").symlink_to(tmp_path / "private")
        made = await call("POST", "datasets", body={"name": "a", "type": "CSV", "path": "mnist"})
        assert made.status == 201, made.json
        assert (made.json["mode"], made.json["files"]) == ("reference", None)
        assert (await call("GET", "datasets/a")).json["files"] == []
        refused = [
            await call("POST", "datasets", body={"name": "b", "type": "CSV", "path": "mnist", "copy": True}),
            await call("POST", "models", body={"name": "m", "path": "mnist/more"}),
        ]
        assert [answer.status for answer in refused] == [422, 422]
        assert all("reads nothing of its data folder for a user" in answer.json["message"] for answer in refused)
        missing = await call("POST", "datasets", body={"name": "c", "type": "CSV", "path": "mnist/more/x"})
        assert "secret" not in missing.body.decode()
        with pytest.raises(HTTPClientError) as page:
            await jp_fetch("platform/rest/deeplearning/v1/datasets/a/csvs", params={"type": "Train"})
        assert b"reads nothing of its data folder for a user" in page.value.response.body


def test_only_regular_files_are_opened_and_none_is_waited_for(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    assert read_regular(tmp_path / "file") == b"text"
    for name in ("fifo", "link", "folder", "missing"):
        with pytest.raises(FileNotFoundError):
            open_regular(tmp_path / name)


def test_no_component_below_the_job_s_folder_may_be_a_link(tmp_path):
    job, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    for folder in (job / "log" / "driver", elsewhere / "driver"):
        folder.mkdir(parents=True)
        (folder / "stdout").write_text(folder.parts[-2])
    assert read_regular(job / "log/driver/stdout", within=job) == b"log"
    (tmp_path / "name").symlink_to(job)
    # The folder of the job itself is the administrator's, who may put it anywhere.
    assert read_regular(tmp_path / "name/log/driver/stdout", within=tmp_path / "name") == b"log"
    assert [path.name for path, _ in regular_files(job / "log", "*/std*", within=job)] == ["stdout"]
    (job / "other").symlink_to(elsewhere)
    (job / "inner").mkdir()
    (job / "inner/driver").symlink_to(elsewhere / "driver")
    for name in ("other/driver/stdout", "inner/driver/stdout", "log/driver/../../../elsewhere/driver/stdout"):
        assert (job / name).read_text()
        with pytest.raises(FileNotFoundError):
            open_regular(job / name, within=job)
    assert list(regular_files(job / "other", "**/*", within=job)) == []
    assert list(regular_files(job / "inner", "*/std*", within=job)) == []
