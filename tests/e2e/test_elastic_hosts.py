"""Hosts that the server asks of an engine for its jobs, with real agents. A mistake of the engine costs no update."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.schemas.hosts import HostState
from edt_sdk.testing import LocalServer, _free_port
from tests.e2e.fleet import more_updates
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of
from tests.server.providers.kube import KubernetesEngine
from tests.waiting import until

EPOCHS = 40
ARGUMENTS = ("--epochs", str(EPOCHS), "--samples", "60")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[KubernetesEngine]:
    engine = KubernetesEngine(tmp_path / "engine")
    engine.renew()
    yield engine
    engine.clean()
    engine.close()


@pytest.fixture
def jobs(engine: KubernetesEngine, tmp_path: Path) -> Iterator[Jobs]:
    kubernetes = {**engine.settings(), "command": sys.executable, "max_hosts": 2, "slots": 1, "poll": 0.2}
    traits = {
        "EdtApp.threads_per_slot": 1,
        "EdtApp.local_slots": -1,
        "EdtApp.fleet_listen": f"127.0.0.1:{_free_port()}",
        "EdtApp.providers": {"kubernetes": kubernetes},
    }
    with LocalServer(tmp_path / "server", traits=traits) as server:
        yield Jobs(server)


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path / "gates", EPOCHS)


def on_one(jobs: Jobs, gates: Gates) -> tuple[Job, str]:
    """A training on one host of the engine, and that host."""
    job = jobs.submit("cnn.py", *ARGUMENTS, "--gates", str(gates.folder), max_workers=1)
    until(lambda: hosts_of(job), "a worker on a host of the engine")
    more_updates(jobs, job, gates)
    (host,) = hosts_of(job)
    return job, host


def ends_whole(jobs: Jobs, job: Job, gates: Gates) -> None:
    gates.open_all()
    job.wait(300)
    commits = jobs.commits(job)
    assert [each["update"] for each in commits] == list(range(len(commits)))
    lost = [event for event in job.story() if event.kind in ("worker_lost", "supervisor_lost")]
    assert all("moved_to" in event.data for event in lost)  # where its supervisor was is only where its files lie


def test_an_engine_that_is_down_takes_no_host_away_and_its_next_ones_come_later(
    engine: KubernetesEngine, jobs: Jobs, gates: Gates
) -> None:
    job, host = on_one(jobs, gates)
    since = jobs.client.host(host).since
    engine.break_()
    waits = jobs.submit("cnn.py", *ARGUMENTS, max_workers=1)
    until(lambda: "apiserver not ready" in str(waits.refresh().view.reason), "the engine's words in its reason")
    more_updates(jobs, job, gates)
    engine.heal()
    waits.wait(300)
    assert (jobs.client.host(host).state, jobs.client.host(host).since) == (HostState.UP, since)
    ends_whole(jobs, job, gates)


@pytest.mark.long  # test_an_engine_that_is_down… and the conformance of providers stay
def test_a_machine_that_the_engine_takes_for_gone_is_drained_while_its_agent_is_heard(
    engine: KubernetesEngine, jobs: Jobs, gates: Gates
) -> None:
    job, host = on_one(jobs, gates)
    engine.pods[host]["status"]["phase"] = "Failed"
    until(lambda: jobs.client.host(host).state is HostState.DRAINING, "the drain of the host")
    gates.open_until(lambda: hosts_of(job) - {host}, "the job on another host of the engine", ready=0)
    ends_whole(jobs, job, gates)


def test_an_agent_that_the_engine_starts_twice_is_one_host(engine: KubernetesEngine, jobs: Jobs, gates: Gates) -> None:
    job, host = on_one(jobs, gates)
    own = {**os.environ, "XDG_DATA_HOME": str(engine.folder / "second")}
    second = subprocess.run(engine.processes[host].args, env=own, capture_output=True, check=False)
    assert second.returncode == 1
    assert b"The token is used up" in second.stderr
    assert [each.name for each in jobs.client.hosts()] == [host]
    ends_whole(jobs, job, gates)
