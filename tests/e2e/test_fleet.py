"""Machines that share nothing but a network join a server, and one training goes on whatever happens to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.schemas.hosts import HostState
from tests.e2e.fleet import (
    ARGUMENTS,
    EPOCHS,
    Machines,
    begun,
    committed,
    home_of,
    is_as_alone,
    more_updates,
    on,
    on_two_machines,
)
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.network import Network
from tests.waiting import until


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network("one", "two", "three", "four", "head") as network:
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
    """The same training on one worker of the first machine."""
    machines.join(jobs, "one")
    return jobs.submit("cnn.py", *ARGUMENTS, max_workers=1).wait(300)


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    return Gates(tmp_path / "gates", EPOCHS)


def test_a_training_grows_over_four_machines_and_moves_when_its_first_one_leaves(
    machines: Machines, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    job = begun(jobs, gates)
    on(jobs, job, gates, {"one"}, workers=1)
    for name in ("two", "three", "four"):
        machines.start(jobs, name)
    on(jobs, job, gates, {"one", "two", "three", "four"}, workers=4)
    more_updates(jobs, job, gates)
    assert machines.forked("one") == (["supervisor"], True)
    assert machines.forked("two") == (["outpost"], True)
    for name in ("three", "four"):
        jobs.client.drain_host(name)
    on(jobs, job, gates, {"one", "two"}, workers=4)
    # The machine with the job's supervisor and its files gives up its slot.
    jobs.client.drain_host("one")
    gates.open_until(lambda: home_of(jobs, job) == "two", "another supervisor on the other machine", ready=0)
    on(jobs, job, gates, {"two"}, workers=5)
    more_updates(jobs, job, gates)
    assert "moved to host two" in str(job.story())
    assert "unexpectedly" not in str(job.story())
    jobs.client.drain_host("one", undo=True)
    on(jobs, job, gates, {"one", "two"}, workers=6)
    gates.open_all()
    is_as_alone(jobs, job, alone)
    for name in ("two", "three", "four"):
        folder = machines.folder / name / "jobs"
        until(lambda folder=folder: not list(folder.iterdir()), f"the end of what was copied to {name}")


def test_a_member_is_cut_off_and_comes_back(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    job, near, far = on_two_machines(machines, jobs, gates)
    (survivor,) = (each["pid"] for each in job.workers() if each["host"] == near)
    network.cut(far)
    more_updates(jobs, job, gates)
    assert [each["pid"] for each in job.workers() if each["rank"] is not None] == [survivor], "nobody was killed for it"
    network.heal(far)
    on(jobs, job, gates, {"one", "two"}, workers=3)
    gates.open_all()
    is_as_alone(jobs, job, alone)


def test_the_machine_with_the_supervisor_is_cut_off_and_what_it_does_then_counts_for_nothing(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    job, near, far = on_two_machines(machines, jobs, gates)
    network.cut(near)
    until(lambda: home_of(jobs, job) == far, "another supervisor on the other machine")
    more_updates(jobs, job, gates)
    network.heal(near)
    on(jobs, job, gates, {"one", "two"}, workers=4)
    gates.open_all()
    is_as_alone(jobs, job, alone)
    # When it is back it greets, or it sends what it has trained meanwhile, whichever comes first.
    assert re.search("has taken the place of attempt|went on elsewhere: attempt 1 ends here", machines.log(near))


def test_the_machine_with_the_supervisor_loses_power(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    job, near, far = on_two_machines(machines, jobs, gates)
    reached = committed(jobs, job)[-1]
    network.cut(near)
    network.kill(near)
    until(lambda: home_of(jobs, job) == far, "another supervisor on the other machine")
    more_updates(jobs, job, gates)
    network.heal(near)
    machines.join(jobs, near)
    on(jobs, job, gates, {"one", "two"}, workers=4)
    gates.open_all()
    is_as_alone(jobs, job, alone)
    resumed = next(event.data["update"] for event in reversed(job.story()) if event.kind == "generation")
    assert resumed >= reached, "what the other machine had was not computed again"


def test_a_machine_that_was_away_when_a_job_ended_has_nothing_of_it_afterwards(
    machines: Machines, network: Network, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    job, _, far = on_two_machines(machines, jobs, gates)
    network.cut(far)
    until(lambda: jobs.client.host(far).state is HostState.LOST, "the loss of the machine")
    gates.open_all()
    is_as_alone(jobs, job, alone)
    folder = machines.folder / far / "jobs" / job.id
    assert folder.exists()
    network.heal(far)
    until(lambda: not folder.exists(), "the end of the job's files there")


def test_the_server_is_away_and_hears_everything_afterwards(
    machines: Machines, jobs: Jobs, alone: Job, gates: Gates
) -> None:
    job, near, _ = on_two_machines(machines, jobs, gates)
    machines.server.kill()
    log = machines.folder / near / "jobs" / job.id / "training-0.commits.jsonl"
    goal = len(log.read_text().splitlines()) + 20
    gates.open_until(lambda: len(log.read_text().splitlines()) >= goal, "updates without a server", ready=0)
    machines.server.start()
    jobs.client = machines.server.client()
    job = jobs.client.job(job.id)
    until(lambda: len(committed(jobs, job)) >= goal, "what was trained without a server")
    assert home_of(jobs, job) == near
    gates.open_all()
    is_as_alone(jobs, job, alone)
    assert not any(event.kind in ("worker_lost", "supervisor_lost") for event in job.story())
