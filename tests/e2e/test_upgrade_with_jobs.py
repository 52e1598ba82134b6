"""Jobs of version 0.1 go on under this one, finished, suspended or running, with the bits of a run without a break.

The commit before the source was regrouped is taken from this repository's history and replaced in place, as
`pip install -U` does it, while jobs run. What is here before and after: a store, a rolling checkpoint, a copy in
memory, and a supervisor, a zygote, a driver and workers that have the old modules in memory.
"""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from edt_sdk import Job
from edt_sdk.testing import LocalServer
from edt_sdk.training.state import previous_version as former
from edt_sdk.training.validation.tally import Wanted, portable, received, tally
from tests.e2e.gates import Gates
from tests.e2e.harness import JOBS, Jobs
from tests.waiting import until

OLD = "d7f2f61"
ROOT = Path(__file__).parents[2]
PACKAGES = ("edt_sdk", "server/edt_server", "jupyter_ext/edt_jupyter")
TRAITS = {"EdtApp.threads_per_slot": 1, "EdtApp.checkpoint_interval": 3600.0, "EdtApp.standby_workers": 0}
EPOCHS = 40
ARGS = ("--epochs", str(EPOCHS), "--samples", "32")


class Installation:
    """A folder of code that takes precedence over what the tests' own environment has installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = [folder, folder / "server", folder / "jupyter_ext", folder / "edt_sdk" / "compat" / "kernel"]
        self.environ = {"PYTHONPATH": os.pathsep.join(map(str, paths))}

    def put_old(self) -> None:
        found = subprocess.run(["git", "archive", OLD, *PACKAGES], cwd=ROOT, capture_output=True, check=False)
        if found.returncode:
            pytest.skip(f"this is no clone with the commit {OLD} in its history")
        with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
            archive.extractall(self.folder, filter="data")

    def put_new(self) -> None:
        for package in PACKAGES:
            shutil.rmtree(self.folder / package)
            shutil.copytree(ROOT / package, self.folder / package, ignore=shutil.ignore_patterns("__pycache__"))

    def ask(self, server: LocalServer, code: str) -> Any:
        """Run code with this version's own client; what it calls `answer` comes back."""
        program = (
            "import json; from edt_sdk import Client; "
            f"client = Client({server.url!r}, token={server.token!r}); {code}; print(json.dumps(answer))"
        )
        ran = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.folder,
            env=os.environ | self.environ,
            stdout=subprocess.PIPE,
            check=True,
        )
        return json.loads(ran.stdout.splitlines()[-1])

    def submit(self, server: LocalServer, *args: str, max_workers: int) -> str:
        options = {"main": "cnn.py", "args": [*ARGS, *args], "max_workers": max_workers, "progress": False}
        found: str = self.ask(server, f"answer = client.submit({str(JOBS)!r}, **{options!r}).id")
        return found


def text_of(jobs: Jobs, job: Job) -> str:
    """What the workers of a job have written on stderr."""
    return "".join(path.read_text() for path in sorted(jobs.private(job).glob("**/worker-*.stderr")))


def memory_of(pid: int) -> Path:
    """The folder for copies in memory of a worker's job."""
    return Path(json.loads(psutil.Process(pid).environ()["EDT_JOB"].rstrip("\0"))["memory_dir"])


def test_jobs_of_the_version_before_go_on_with_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    code = Installation(tmp_path / "code")
    code.put_old()
    with LocalServer(tmp_path_factory.mktemp("old"), slots=4, traits=TRAITS, environ=code.environ) as server:
        jobs = Jobs(server)
        finished = code.submit(server, max_workers=1)
        paused_gates, gates = Gates(tmp_path / "paused", EPOCHS), Gates(tmp_path / "running", EPOCHS)
        paused = code.submit(server, "--gates", str(paused_gates.folder), max_workers=1)
        running = code.submit(server, "--gates", str(gates.folder), max_workers=2)
        paused_gates.open_until(lambda: len(commits(jobs, paused)) >= 5, "five updates", ready=1)
        [pid] = [worker["pid"] for worker in code.ask(server, f"answer = list(client.job({paused!r}).workers())")]
        paused_memory = memory_of(pid)
        code.ask(server, f"answer = client.job({paused!r}).suspend().id")
        paused_gates.open_all()
        gates.open_until(lambda: '"world":2' in "".join(commits(jobs, running)[-1:]), "two workers", ready=2)
        for job_id, state in ((finished, "FINISHED"), (paused, "SUSPENDED")):
            until(
                lambda: code.ask(server, f"answer = client.job({job_id!r}).state.value") == state,  # noqa: B023
                f"{state} for a job",
            )
        read = f"job = client.job({finished!r}); answer = [list(job.metrics().train), len(list(job.story()))]"
        wrote = code.ask(server, read)

        server.stop(end_jobs=False)
        code.put_new()
        server.start()
        jobs.client = server.client()

        alone, job, resumed = (jobs.client.job(each) for each in (finished, running, paused))
        assert [each.state for each in (alone, job, resumed)] == ["FINISHED", "RUNNING", "SUSPENDED"]
        assert [json.loads(json.dumps(list(alone.metrics().train))), len(list(alone.story()))] == wrote
        assert "trained" in str(alone.logs())
        assert alone.timeline().rows

        # A member of the old version, and new ones that are forked from a zygote of the old version.
        until(lambda: len(workers(job)) == 2, "the supervisor")
        old, other = workers(job)
        job.update(max_workers=3)
        os.kill(other, signal.SIGKILL)
        gates.open_until(lambda: jobs.worlds(job)[-1:] == [3], "three workers", ready=3)
        assert workers(job)[0] == old

        # Once nobody has the state any more, it is in the copy in memory alone, which the old member has written.
        memory = memory_of(old)
        assert {path.read_bytes()[:8] for path in memory.glob("training-*")} == {b"edtmem-3"}
        for pid in workers(job):
            os.kill(pid, signal.SIGKILL)
        until(lambda: "from memory" in text_of(jobs, job), "a start from the copy in memory")
        gates.open_all()
        job.wait(300)

        # As after a reboot: there is no copy in memory, only the checkpoint on disk.
        shutil.rmtree(paused_memory, ignore_errors=True)
        resumed.resume().wait(300)
        assert "from update-" in text_of(jobs, resumed)
        for each in (job, resumed):
            assert jobs.file_hashes(each) == jobs.file_hashes(alone)
            assert [line["update"] for line in jobs.commits(each)] == list(range(EPOCHS))


def commits(jobs: Jobs, job_id: str) -> list[str]:
    path = jobs.server.data_dir / "jobs" / job_id / "training-0.commits.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def workers(job: Job) -> list[int]:
    """Pids of the members, in the order of their ranks."""
    members = [worker for worker in job.workers() if worker["rank"] is not None]
    return [worker["pid"] for worker in sorted(members, key=lambda worker: worker["rank"])]


def test_members_of_both_versions_add_up_what_they_have_counted(tmp_path: Path) -> None:
    code = Installation(tmp_path / "code")
    code.put_old()
    mine = tally(torch.eye(3), torch.tensor([0, 1, 1]), Wanted(("accuracy",)))
    program = (
        "import pickle, sys, torch; from edt_sdk.training.validation_tally import Wanted, tally; "
        "own = tally(torch.eye(3), torch.tensor([2, 1, 2]), Wanted(('accuracy',))); "
        "both = sum([pickle.load(sys.stdin.buffer)], start=own); "
        "sys.stdout.buffer.write(pickle.dumps((own, both)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=code.folder,
        env=os.environ | code.environ,
        input=pickle.dumps(portable(mine)),
        stdout=subprocess.PIPE,
        check=True,
    )
    theirs, both = map(received, former.loads(ran.stdout))
    for counts in (both, theirs + mine):
        assert counts.true.tolist() == [1, 3, 2]
        assert counts.accuracy == 4 / 6


def test_the_stored_main_script_of_a_call_from_a_notebook_finds_what_it_imports(tmp_path: Path) -> None:
    code = Installation(tmp_path / "code")
    code.put_old()
    tree = ast.parse((code.folder / "edt_sdk" / "training" / "call.py").read_text())
    stored = next(n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "_SCRIPT")
    names: dict[str, Any] = {"__name__": "train_call"}
    exec(ast.literal_eval(stored), names)
    assert callable(names["call"].load)
    assert names["FabricModel"].train
