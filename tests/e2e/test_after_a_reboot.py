"""The machine was booted anew, or the container is another one: nothing of a job is left, and it goes on."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path

import psutil
import pytest

from edt_sdk import Job
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.chaos import processes
from tests.e2e.harness import Jobs
from tests.waiting import until

TRAITS = {"EdtApp.threads_per_slot": 1, "EdtApp.checkpoint_interval": 0.5}


def elsewhere(server: LocalServer, job: Job, **changes: str) -> None:
    """Let the store say that the job's supervisor was started somewhere that is not here."""
    with sqlite3.connect(server.data_dir / "edt.sqlite") as store:
        (text,) = store.execute("SELECT supervisor FROM edt_jobs WHERE id = ?", (job.id,)).fetchone()
        identity = {**json.loads(text), **changes}
        store.execute("UPDATE edt_jobs SET supervisor = ? WHERE id = ?", (json.dumps(identity), job.id))
    store.close()


def trained(jobs: Jobs, job: Job) -> int:
    return len(jobs.commits(job))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"boot_id": "another boot"}, id="reboot", marks=pytest.mark.long),
        pytest.param({"pid_namespace": "pid:[1]"}, id="container"),
    ],
)
def test_a_job_resumes_from_its_checkpoint(tmp_path: Path, changes: dict[str, str]) -> None:
    with LocalServer(tmp_path, slots=2, traits=TRAITS) as server:
        jobs = Jobs(server)
        job = jobs.submit("forever.py", max_workers=2)
        rolling = server.data_dir / "results"
        until(lambda: trained(jobs, job) > 20 and list(rolling.rglob("*.ckpt*")), "a checkpoint")
        server.kill()
        killed = processes.of_job(jobs.private(job)).all
        for process in killed:
            processes.hit(process, signal.SIGKILL)
        psutil.wait_procs(killed, timeout=30)
        elsewhere(server, job, **changes)
        server.start()
        job = server.client().job(job.id)
        before = trained(jobs, job)
        until(lambda: job.refresh().state is JobState.RUNNING and trained(jobs, job) > before, "the job back")
        commits = jobs.commits(job)
        assert [commit["update"] for commit in commits] == list(range(len(commits)))
        assert any(event.kind == "supervisor_lost" for event in job.story())
