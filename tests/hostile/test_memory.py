"""What one request makes a real server hold: its peak over what it had, for bombs and for the largest answers."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator

import pytest
import requests

from tests.hostile.archives import zoo
from tests.hostile.world import DLI, World, running, table
from tests.jupyter.conftest import multipart
from tests.waiting import LIMIT, until

MOST = 50 << 20
BIG = 200 << 20
# Fills its logs and results: with long lines, with nothing but line breaks, and with any number of files.
_WRITER = f"""
import os, pathlib, sys
result, log = pathlib.Path(os.environ["RESULT_DIR"]), pathlib.Path(os.environ["LOG_DIR"])
def big(path, size={BIG}):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
for number in range(100):
    big(log.parent / f"driver-{{number}}" / "stdout", 4 << 20)
big(result / "model" / "train" / "model.pth")
sys.stdout.write("\\n" * (8 << 20))
for _ in range({BIG} // 2 >> 16):
    sys.stderr.write("😀x".ljust(99) * 600 + "\\n")
"""
_METRICS = """
import json, os, pathlib
result = pathlib.Path(os.environ["RESULT_DIR"])
with (result.parents[3] / "jobs" / result.name / "training-0.metrics.jsonl").open("w") as file:
    for update in range(50_000):
        print(json.dumps({"training": 0, "kind": "train", "update": update, "loss": 0.5}), file=file)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("memory"), app="edt serve") as world:
        yield world


def _big_code() -> bytes:
    """A model's archive with a file that is a bomb."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, size in (("main.py", 1), ("big.py", 0)):
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(b"#" * size))
    head = bytearray(raw.getvalue()[:1536])
    info = tarfile.TarInfo("big.py")
    info.size = BIG
    head[1024:1536] = info.tobuf()
    piece = gzip.compress(b"#" * (1 << 20))
    return gzip.compress(bytes(head)) + piece * (BIG >> 20) + gzip.compress(bytes(1024))


class Measured:
    """A table of requests and their peaks."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.peaks: dict[str, int] = {}
        self.statuses: dict[str, int] = {}

    def __call__(self, name: str, send: Callable[[], requests.Response], *expected: int) -> None:
        before = self.world.forget_peak()
        answer = send()
        self.peaks[name] = self.world.memory("VmHWM") - before
        self.statuses[name] = answer.status_code
        assert answer.status_code in (expected or (200,)), (name, answer.status_code, answer.text[:300])

    def check(self, title: str) -> None:
        rows = {
            f"{name}  ({self.statuses[name]})": f"{peak / 2**20:+7.1f} MiB"
            for name, peak in sorted(self.peaks.items(), key=lambda item: -item[1])
        }
        print(table(title, rows))
        assert not [name for name, peak in self.peaks.items() if peak > MOST], rows
        self.world.is_well()


def _get(world: World, path: str, headers: dict[str, str] | None = None) -> Callable[[], requests.Response]:
    def send() -> requests.Response:
        # The client throws away what it reads: a test of the server's memory needs none of its own.
        with world.session.get(
            world.server.url.rstrip("/") + path,
            headers={"Authorization": "token ann-secret", **(headers or {})},
            stream=True,
            timeout=LIMIT,
        ) as answer:
            begin = b""
            for piece in answer.iter_content(1 << 20):
                begin = begin or piece[:300]
            answer._content = begin  # type: ignore[attr-defined]
            return answer

    return send


# The short form is `tests/server/wmla/test_memory.py`, which measures the functions and not a server.
@pytest.mark.long
def test_the_bombs(world: World) -> None:
    measured = Measured(world)
    spec = {"name": "bomb", "main": "main.py", "framework": "PyTorch"}
    body, kind = multipart(("spec", json.dumps(spec).encode()), ("package", _big_code()))
    body = body.replace(b'filename="package"', b'filename="a.tar.gz"')
    headers = {"Content-Type": kind}
    measured("a model is uploaded", lambda: world.send("POST", "/edt/api/models", data=body, headers=headers), 201)
    measured("a file of it is shown", _get(world, f"{DLI}/models/files/bomb%2Fbig.py"), 413)
    change = {"tmpfilePath": "more.py", "tmpfileContent": "print()"}
    measured("a file of it is written", lambda: world.send("PUT", f"{DLI}/models/bomb/files", json=change))
    header = next(animal for animal in zoo() if animal.name == "tar: bomb of a pax header")
    arguments = {"args": "--exec-start PyTorch --model-main train.py"}
    files = {"file": ("a.tar.gz", header.data)}
    measured(
        "an exec with a pax header", lambda: world.send("POST", f"{DLI}/execs", params=arguments, files=files), 400
    )
    measured("JSON of 100 MB", lambda: _refused_early(world), 400)
    measured.check("bombs: the server's peak over what it had before")


def _refused_early(world: World) -> requests.Response:
    """A body that nobody would send as JSON. The server closes the connection before it is sent."""
    answer = requests.Response()
    try:
        return world.send("POST", "/edt/api/forecasts", data=b"[" + b"1," * (50 << 20) + b"1]")
    except requests.ConnectionError:
        answer.status_code = 400
        return answer


@pytest.mark.long
def test_the_largest_answers(world: World) -> None:
    # Freed first: the two jobs that run hold both slots.
    for user in ("ann", "bob"):
        world.send("POST", "/edt/api/jobs/stop", user)
    job = world.submit(_WRITER.encode())
    points = world.submit(_METRICS.encode())
    assert world.ended(job) == "FINISHED"
    assert world.ended(points) == "FINISHED"
    measured, logs = Measured(world), f"/edt/api/jobs/{job}/logs"
    measured("a line of a log", _get(world, f"{logs}?limit=1"))
    measured("100,000 lines of a log", _get(world, f"{logs}?limit=100000"))
    measured("its last 100,000 lines", _get(world, f"{logs}?tail=100000"))
    measured("100,000 lines of stderr", _get(world, f"{logs}?limit=100000&stream=stderr&worker=0"))
    measured("the whole stderr", _get(world, f"{logs}?stream=stderr&worker=0", headers={"Accept": "text/plain"}))
    measured("the log of an exec", _get(world, f"{DLI}/execs/{job}/log?logType=errlog"), 413)
    measured("its stderr", _get(world, f"{DLI}/scheduler/applications/{job}/executor/1/logs/stderr"), 413)
    measured("its last lines", _get(world, f"{DLI}/scheduler/applications/{job}/executor/1/logs/stderr?lastlines=50"))
    measured("the result", _get(world, f"/edt/api/jobs/{job}/result"))
    measured("the result of an exec", _get(world, f"{DLI}/execs/{job}/result"))
    measured("50,000 points", _get(world, f"/edt/api/jobs/{points}/metrics?points=1000000"))
    measured("a curve of them", _get(world, f"/edt/api/jobs/{points}/curve"))
    measured("all jobs", _get(world, "/edt/api/jobs?limit=10000&all=1"))
    measured("rows", _get(world, f"{DLI}/datasets/default/csvs?length=1000"))
    measured("rows beyond all", _get(world, f"{DLI}/datasets/default/csvs?start={2**63 - 1}"), 400)
    (world.shared / "rows" / "rows.csv").write_bytes(b"1," * BIG)
    measured("a row of 400 MB", _get(world, f"{DLI}/datasets/default/csvs"), 413)
    (world.shared / "rows" / "rows.csv").write_bytes((b"1," * 256 + b"\n") * 5000)
    measured("rows of digits", _get(world, f"{DLI}/datasets/default/csvs?length=1000"))
    measured.check("the largest answers: the server's peak over what it had before")
    until(lambda: world.send("DELETE", f"/edt/api/jobs/{job}").status_code in (204, 404), "its removal")
