"""A job puts a FIFO, a device or a link where the server reads its files: every request is answered all the same."""

from __future__ import annotations

import asyncio
import os

import pytest

from edt_sdk.schemas.wire.regular import open_regular, read_regular
from tests.waiting import until_async

SECRET = "what only the server may read"
SCRIPT = """
import os, pathlib, stat
secret, kind = SECRET, KIND
result = pathlib.Path(os.environ["RESULT_DIR"])
private = result.parents[3] / "jobs" / result.name

def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    else:
        path.symlink_to(secret)

for path in [*(private / "streams").iterdir(), *(result / "log").glob("*/*")]:
    put(path)
for name in ("stdout", "stderr"):
    put(pathlib.Path(os.environ["LOG_DIR"]) / name)
put(result / "model/train/model_epoch_1.pth")
put(result / "checkpoint/training-0/epoch-1.ckpt")
put(result / "validation.json")
for name in ("training-0.metrics.jsonl", "training-0.commits.jsonl", "streams.index.jsonl"):
    put(private / name)
"""
ASKED = ("logs", "metrics", "curve", "checkpoints", "validation", "workers", "result", "pictures/loss", "timeline", "")


@pytest.mark.parametrize("kind", ["fifo", "link", "device"])
async def test_what_a_job_puts_in_the_place_of_its_files_stops_nobody(submit, call, tmp_path, jp_fetch, kind):
    if kind == "device" and os.getuid() != 0:
        pytest.skip("only root can make a device")
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    script = SCRIPT.replace("SECRET", repr(str(secret))).replace("KIND", repr(kind)).encode()
    job = (await submit({"train.py": script}, framework="PyTorch")).json["id"]

    async def ended():
        view = (await call("GET", f"jobs/{job}")).json
        return view["state"] in ("FINISHED", "FAILED") and view

    view = await until_async(ended, "the end of the job")
    assert view["state"] == "FINISHED", view["message"]
    answers = await asyncio.gather(*(call("GET", f"jobs/{job}/{asked}") for asked in ASKED for _ in range(3)))
    assert not [answer.json for answer in answers if answer.status >= 500]
    assert not [answer for answer in answers if SECRET.encode() in answer.body]
    wmla = await jp_fetch("platform/rest/deeplearning/v1/execs", job, "log")
    assert SECRET.encode() not in wmla.body
    assert (await call("GET", "jobs")).status == 200


def test_only_regular_files_are_opened_and_none_is_waited_for(tmp_path):
    (tmp_path / "file").write_bytes(b"text")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    assert read_regular(tmp_path / "file") == b"text"
    for name in ("fifo", "link", "folder", "missing"):
        with pytest.raises(FileNotFoundError):
            open_regular(tmp_path / name)
