"""Two named hosts on this machine: a job spans both, and goes on with the other one when one of them is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import agent, hosts_of, lose, running, wait_for_hosts
from tests.waiting import until

TRAITS = {"EdtApp.threads_per_slot": 1, "EdtApp.local_hosts": {"a": 2, "b": 2}, "EdtApp.checkpoint_interval": 1.0}
LOSSES = int(os.environ.get("EDT_HOST_LOSSES", "2"))


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    with LocalServer(tmp_path_factory.mktemp("hosts"), traits=TRAITS) as server:
        yield Jobs(server)


def committed(jobs: Jobs, job: Job) -> int:
    commits = jobs.commits(job)
    return commits[-1]["update"] + 1 if commits else 0


def wait_for_updates(jobs: Jobs, job: Job, more: int = 3) -> None:
    goal = committed(jobs, job) + more
    until(lambda: committed(jobs, job) >= goal, f"{more} more updates")


def let_through(jobs: Jobs, job: Job, gates: Gates, more: int) -> None:
    """Open gates until there are so many more updates."""
    goal = committed(jobs, job) + more
    gates.open_until(lambda: committed(jobs, job) >= goal, f"{more} more updates")


@pytest.mark.long
def test_a_generation_spans_both_hosts_and_workers_tell_theirs(two_hosts: Jobs, tmp_path: Path) -> None:
    slots = [(slot["host"], slot["device"]) for slot in two_hosts.client.cluster()["slots"]]
    assert sorted(slots) == [("a", "cpu"), ("a", "cpu"), ("b", "cpu"), ("b", "cpu")]
    arguments = ("--epochs", "40", "--samples", "60")
    gates = Gates(tmp_path / "gates", 40)
    job = two_hosts.submit("cnn.py", *arguments, "--gates", str(gates.folder))
    gates.open_until(lambda: hosts_of(job) == {"a", "b"}, "workers on both hosts", ready=4)
    gates.open_all()
    job.wait(300)
    alone = two_hosts.submit("cnn.py", *arguments, max_workers=1).wait(300)
    assert max(two_hosts.worlds(job)) >= 2
    assert two_hosts.final_hash(job) == two_hosts.final_hash(alone)


@pytest.mark.timeout(600 + 60 * LOSSES)
def test_a_job_goes_on_when_hosts_are_lost_and_ends_with_the_same_bits(two_hosts: Jobs, tmp_path: Path) -> None:
    epochs = 4 + 12 * LOSSES
    arguments = ("--epochs", str(epochs), "--samples", "60")
    alone = two_hosts.submit("cnn.py", *arguments, max_workers=1).wait(600)
    gates = Gates(tmp_path / "gates", epochs)
    job = two_hosts.submit("cnn.py", *arguments, "--gates", str(gates.folder))
    for number in range(LOSSES):
        gates.open_until(lambda: hosts_of(job) == {"a", "b"}, "workers on both hosts", ready=4)
        let_through(two_hosts, job, gates, 1 + number % 3)
        # Of each pair the first takes the job's supervisor with it, the second only workers: it is on the other host.
        host, other = "ab" if number // 2 % 2 == 0 else "ba"
        assert lose(two_hosts, host) >= 2
        until(lambda: other in hosts_of(job), f"workers on {other}")  # noqa: B023
        let_through(two_hosts, job, gates, 3)
    gates.open_all()
    job.wait(600)
    commits = [commit["update"] for commit in two_hosts.commits(job)]
    assert commits == list(range(len(two_hosts.commits(alone))))
    assert two_hosts.final_hash(job) == two_hosts.final_hash(alone)


@pytest.mark.long
def test_a_host_is_lost_and_the_server_restarted_meanwhile(two_hosts: Jobs) -> None:
    job = two_hosts.submit("forever.py", name="alone on its host")
    wait_for_hosts(job, "a", "b")
    before = agent(two_hosts, "b").identity
    two_hosts.server.kill()
    lose(two_hosts, "a")
    two_hosts.server.start()
    two_hosts.client = two_hosts.server.client()
    job = two_hosts.client.job(job.id)
    wait_for_updates(two_hosts, job)
    wait_for_hosts(job, "a", "b")
    assert agent(two_hosts, "b").identity == before
    assert job.refresh().state is JobState.RUNNING
    job.stop()


@pytest.mark.long
def test_an_agent_that_was_stopped_is_lost(two_hosts: Jobs) -> None:
    job = two_hosts.submit("forever.py", name="beside one that hangs")
    wait_for_hosts(job, "a", "b")
    pid = agent(two_hosts, "b").identity.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: not running({pid}), "the end of the agent")
    wait_for_updates(two_hosts, job)
    wait_for_hosts(job, "a", "b")
    assert any("host" in event.text for event in job.story() if event.kind in ("worker_lost", "supervisor_lost"))
    job.stop()


@pytest.mark.long
def test_when_every_host_is_lost_the_job_goes_on_when_there_is_one_again(two_hosts: Jobs) -> None:
    job = two_hosts.submit("forever.py", name="without any host", max_workers=3)
    wait_for_hosts(job, "a", "b")
    wait_for_updates(two_hosts, job)
    lose(two_hosts, "a")
    lose(two_hosts, "b")
    wait_for_updates(two_hosts, job)
    wait_for_hosts(job, "a", "b")
    commits = [commit["update"] for commit in two_hosts.commits(job)]
    assert commits == list(range(len(commits)))
    job.stop()
