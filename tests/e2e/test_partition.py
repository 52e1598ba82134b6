"""Two machines with networks of their own: a job spans both, a cable is pulled, and nothing but the network is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.fleet import Machines, committed
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of, wait_for_hosts
from tests.network import Network
from tests.waiting import until

EPOCHS, SAMPLES = 12, 600
ARGUMENTS = ("--epochs", str(EPOCHS), "--samples", str(SAMPLES))


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("one", "two", "head") as network:
        yield network


@pytest.fixture
def two_machines(network: Network, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    """A server on a third machine that two have joined. The parameter is how many slots each has, one without."""
    machines = Machines(network, tmp_path)
    with machines.serving() as jobs:
        for name in ("one", "two"):
            machines.join(jobs, name, slots=getattr(request, "param", 1))
        yield jobs


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """What holds a job at its last epoch, in the folder of its gates."""
    held = tmp_path / "gates" / f"hold-{EPOCHS - 1}"
    held.parent.mkdir()
    held.touch()
    return held


def test_a_cable_is_pulled_in_the_middle_of_an_update(two_machines: Jobs, network: Network, held: Path) -> None:
    alone = two_machines.submit("cnn.py", *ARGUMENTS, max_workers=1).wait(300)
    job = two_machines.submit("cnn.py", *ARGUMENTS, "--gates", str(held.parent), max_workers=2)
    wait_for_hosts(job, "one", "two")
    goal = len(committed(two_machines, job)) + 5
    until(lambda: len(committed(two_machines, job)) >= goal, "updates on both machines")
    near = json.loads((two_machines.private(job) / "launch.json").read_text())["host"]
    far = "two" if near == "one" else "one"
    (survivor,) = (each["pid"] for each in job.workers() if each["host"] == near)
    network.cut(far)
    goal, begun = len(committed(two_machines, job)) + 3, time.monotonic()
    until(lambda: len(committed(two_machines, job)) >= goal, "updates without the machine that is cut off")
    print(f"{time.monotonic() - begun:.1f} s from the cut to three more updates")
    assert hosts_of(job) == {near}
    assert [each["pid"] for each in job.workers()] == [survivor], "nobody was killed for it"
    network.heal(far)
    wait_for_hosts(job, "one", "two")
    held.unlink()
    job.wait(300)
    assert committed(two_machines, job) == list(range(len(two_machines.commits(alone))))
    assert two_machines.final_hash(job) == two_machines.final_hash(alone)


@pytest.mark.parametrize("two_machines", [2], indirect=True)
def test_members_of_a_machine_add_up_before_anything_travels(two_machines: Jobs, held: Path) -> None:
    alone = two_machines.submit("cnn.py", *ARGUMENTS, max_workers=1).wait(300)
    job = two_machines.submit("cnn.py", *ARGUMENTS, "--gates", str(held.parent), max_workers=4)
    until(lambda: 4 in two_machines.worlds(job), "four workers")
    held.unlink()
    job.wait(300)
    assert two_machines.final_hash(job) == two_machines.final_hash(alone)
    generation = next(event for event in reversed(job.story()) if len(event.data.get("workers", ())) == 4)
    hosts = {slot["id"]: slot["host"] for slot in two_machines.client.cluster()["slots"]}
    places = [hosts[slot] for slot in generation.data["slots"]]
    assert places in (["one", "one", "two", "two"], ["two", "two", "one", "one"]), "ranks are numbered by machine"
