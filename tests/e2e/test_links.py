"""Machines that reach the server and not each other: a job goes on on those that do, with equal bits."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Job
from tests.e2e.fleet import Machines, committed, home_of, is_as_alone, more_updates, on
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of
from tests.network import Network
from tests.waiting import until

EPOCHS = 40
ARGUMENTS = ("--epochs", str(EPOCHS), "--samples", "100")


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network("one", "two", "three", "nat", "head") as network:
        yield network


@pytest.fixture(scope="module")
def machines(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Machines:
    return Machines(network, tmp_path_factory.mktemp("machines"))


@pytest.fixture(scope="module")
def jobs(machines: Machines) -> Iterator[Jobs]:
    with machines.serving() as jobs:
        yield jobs


@pytest.fixture(scope="module")
def alone(machines: Machines, jobs: Jobs) -> Job:
    """The same training on one worker."""
    machines.join(jobs, "one")
    return jobs.submit("cnn.py", *ARGUMENTS, max_workers=1).wait(300)


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path / "gates", EPOCHS)


def begun(jobs: Jobs, gates: Gates, *hosts: str) -> Job:
    """A job with workers on all of these machines."""
    job = jobs.submit("cnn.py", *ARGUMENTS, "--gates", str(gates.folder))
    on(jobs, job, gates, set(hosts), workers=len(hosts))
    return job


def members(job: Job) -> dict[str, int]:
    """The pids of its members by host."""
    return {each["host"]: each["pid"] for each in job.workers() if each["rank"] is not None}


def goes_on_without(jobs: Jobs, job: Job, gates: Gates, near: str, far: str, rest: set[str]) -> None:
    """The job goes on on the rest without the far host, and everybody is told."""
    sentence = f"Hosts {near} and {far} do not reach each other, so it has no slot of {far}."

    def told() -> bool:
        found = job.refresh().reason
        return found is not None and found.text == sentence

    until(told, "the reason")
    gates.open_until(lambda: hosts_of(job) == rest, f"workers on {rest}", ready=0)
    more_updates(jobs, job, gates)
    assert [event.text for event in job.story() if event.kind == "job_apart"] == [sentence.rstrip(".")]
    assert "do not reach each other" in jobs.client.host(far).why
    assert told(), "it does not get a slot there again"


def up(jobs: Jobs) -> set[str]:
    """The machines that have joined and offer their slots."""
    return {view.name for view in jobs.client.hosts() if view.state.value == "up" and view.provider == "joined"}


def parted(jobs: Jobs) -> bool:
    """Whether the page shows hosts that do not reach each other."""
    return any("do not reach" in view.why for view in jobs.client.hosts())


def test_the_link_between_two_members_is_cut_and_the_supervisor_reaches_both(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    for name in ("two", "three"):
        machines.join(jobs, name)
    job = begun(jobs, gates, "one", "two", "three")
    home, before = home_of(jobs, job), members(job)
    far, near = sorted(before.keys() - {home})
    network.part(near, far)
    goes_on_without(jobs, job, gates, near, far, {home, near})
    after = members(job)
    assert after == {host: before[host] for host in (home, near)}, "nobody was killed for it"
    network.part(near, far, parted=False)
    gates.open_all()
    is_as_alone(jobs, job, alone)
    assert not any(event.kind in ("worker_lost", "supervisor_lost") for event in job.story())
    jobs.client.drain_host(far)


@pytest.mark.long  # test_the_link_between_two_members_is_cut_and_the_supervisor_reaches_both stays
def test_the_link_between_the_supervisor_and_a_member_is_cut(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    until(lambda: not parted(jobs), "links that work again")
    job = begun(jobs, gates, *up(jobs))
    home, before = home_of(jobs, job), members(job)
    (far,) = before.keys() - {home}
    network.part(home, far)
    goes_on_without(jobs, job, gates, home, far, {home})
    assert members(job) == {home: before[home]}, "nobody was killed for it"
    network.part(home, far, parted=False)
    until(lambda: not parted(jobs), "a link that works again")
    on(jobs, job, gates, {home, far}, workers=3)
    gates.open_all()
    is_as_alone(jobs, job, alone)
    jobs.client.drain_host(far)


@pytest.mark.long  # test_the_link_between_two_members_is_cut_and_the_supervisor_reaches_both stays
def test_a_machine_behind_a_nat_that_no_other_can_dial_is_not_used_with_them(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    (home,) = up(jobs)
    job = begun(jobs, gates, home)
    network.add_private("nat", "192.168.77.1")
    machines.join(jobs, "nat", "--interface", "192.168.77.1")
    goes_on_without(jobs, job, gates, home, "nat", {home})
    gates.open_all()
    is_as_alone(jobs, job, alone)


def test_a_machine_behind_a_nat_is_not_used_with_the_one_of_the_server(tmp_path: Path, gates: Gates) -> None:
    with Network("nat", "head") as network:
        network.add_private("nat", "192.168.77.1")
        machines = Machines(network, tmp_path, slots=1)
        with machines.serving() as jobs:
            own = socket.gethostname()
            job = begun(jobs, gates, own)
            machines.join(jobs, "nat", "--interface", "192.168.77.1")
            goes_on_without(jobs, job, gates, own, "nat", {own})
            gates.open_all()
            job.wait(300)
            assert committed(jobs, job) == list(range(len(jobs.commits(job))))
