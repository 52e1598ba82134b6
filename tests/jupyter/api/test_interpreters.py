"""What a job may run in: the server's own Python and those of the kernels that are installed, each once."""

from __future__ import annotations

import json
import sys

import pytest

from edt_jupyter.api.cluster import kernels_of
from tests.jupyter.users import AsAnn


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


@pytest.fixture
def program(tmp_path):
    """A Python in this place below a folder of the test, which leaves a mark when it runs."""

    def make(place):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\ntouch {path}.ran\nexec {sys.executable} "$@"\n')
        path.chmod(0o755)
        return path

    return make


def ran(path):
    return path.with_name(f"{path.name}.ran").exists()


class TestSharedByPeople(AsAnn):
    """Nobody makes a server of several people run a program that its administrator did not install."""

    @pytest.fixture
    def edt_config(self, tmp_path):
        return {"interpreters": [str(tmp_path / "envs")]}

    @pytest.fixture
    def preview(self, call):
        async def send(python):
            spec = {"name": "job", "main": "train.py", "max_workers": 1, "python": str(python)}
            return await call("POST", "forecasts", body=spec)

        return send

    async def test_a_program_of_a_user_is_refused_and_never_runs(self, submit, preview, program, leftovers, tmp_path):
        own = program("home/eve/python")
        # A link into the folder, and a way up out of it, lead to the same program.
        (tmp_path / "envs").mkdir()
        around = f"{tmp_path}/envs/../home/eve/python"
        for named in (str(own), around):
            answers = [await submit(python=named), await preview(named)]
            for answer in answers:
                assert (answer.status, answer.json["field"]) == (422, "python")
                assert f"do not run in {named}. They may run in {sys.executable}" in answer.json["message"]
                assert str(tmp_path / "envs") in answer.json["message"]
                assert "c.EdtApp.interpreters" in answer.json["hint"]
            assert answers[0].json == answers[1].json
        assert not ran(own)
        assert leftovers() == []

    async def test_those_of_kernels_and_of_the_named_folder_are_offered(self, submit, preview, program, kernels, call):
        installed, in_folder = program("opt/bin/python"), program("envs/a/bin/python")
        kernels("installed", str(installed), "-m", "ipykernel_launcher")
        for path in (installed, in_folder, installed.with_name("python3")):
            if not path.exists():
                path.symlink_to(installed)
            assert (await preview(path)).status == 200, path
            job = await submit(python=str(path))
            assert job.status == 201, job.json
        listed = [each["python"] for each in (await call("GET", "interpreters")).json["interpreters"]]
        assert listed == [sys.executable, str(installed), str(in_folder)]

    async def test_one_that_is_not_here_is_none_of_the_servers(self, submit, tmp_path):
        """The path of a submitter's kernel on another machine: the job runs in the default, and says so."""
        assert (await submit(python=str(tmp_path / "none"))).status == 201


async def test_on_ones_own_server_any_interpreter_may_be_named(submit, program):
    own = program("home/ann/python")
    assert (await submit(python=str(own))).status == 201
    assert ran(own)


class TestOnesOwnServerOfAHub(AsAnn):
    """The Hub identifies people, but the server it starts for a user is that user's."""

    @pytest.fixture(autouse=True)
    def started_for_ann(self, monkeypatch):
        monkeypatch.setenv("JUPYTERHUB_USER", "ann")

    async def test_any_interpreter_may_be_named(self, submit, program):
        assert (await submit(python=str(program("home/ann/python")))).status == 201
