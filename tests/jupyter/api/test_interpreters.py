"""What a job may run in: the server's own Python and those of the kernels that are installed, each once."""

from __future__ import annotations

import json
import sys

import pytest

from edt_jupyter.api.cluster import kernels_of


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """Install a kernel: its name, and the words it is started with."""
    root = tmp_path / "share" / "kernels"
    monkeypatch.setenv("JUPYTER_PATH", str(root.parent))

    def install(name, *argv, language="python"):
        (root / name).mkdir(parents=True)
        spec = {"argv": list(argv), "display_name": name.title(), "language": language}
        (root / name / "kernel.json").write_text(json.dumps(spec))

    return install


def kernel(*argv, language="python", shown="Shown"):
    return {"spec": {"argv": list(argv), "display_name": shown, "language": language}}


def test_kernels_are_known_by_their_interpreter():
    start = ("-m", "ipykernel_launcher", "-f", "{connection_file}")
    specs = {
        "b": kernel("/opt/b/bin/python", *start, shown="B"),
        "again": kernel("/opt/b/bin/python", *start, shown="B too"),
        "own": kernel("python", *start),
        "julia": kernel("/opt/julia", "-f", language="julia"),
        "contained": kernel("/usr/bin/docker", "run", "image", "-m", "ipykernel_launcher"),
        "broken": {"spec": {"language": "python"}},
    }
    assert kernels_of(specs) == {
        "/opt/b/bin/python": [("again", "B too"), ("b", "B")],
        sys.executable: [("own", "Shown")],
    }


async def test_the_default_comes_first_and_what_cannot_run_a_job_is_told(call, kernels, tmp_path):
    start = ("-m", "ipykernel_launcher")
    bare = tmp_path / "bare"
    # A Python without what is installed here.
    bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -I -S "$@"\n')
    bare.chmod(0o755)
    kernels("bare", str(bare), *start)
    kernels("gone", str(tmp_path / "none"), *start)
    found = (await call("GET", "interpreters")).json["interpreters"]
    assert (found[0]["python"], found[0]["ready"]) == (sys.executable, True)
    assert found[0]["version"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    told = {each["python"]: each for each in found}
    assert (told[str(bare)]["ready"], told[str(bare)]["kernels"]) == (False, [{"name": "bare", "display_name": "Bare"}])
    assert str(tmp_path / "none") not in told


async def test_a_job_says_when_it_runs_in_another_one(submit, call, tmp_path):
    job = (await submit(python=str(tmp_path / "none"))).json["id"]
    events = (await call("GET", f"jobs/{job}/events")).json["events"]
    (remark,) = [event["text"] for event in events if event["kind"] == "remark"]
    assert f"There is no {tmp_path}/none on the server's machine: it runs in {sys.executable}" in remark
