"""The plan and a job's place in it change while it runs: it follows at once, and ends with the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from edt_sdk import ChangedMeanwhile, Job
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup
from edt_sdk.testing import LocalServer
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of, wait_for_hosts
from tests.waiting import until

PLAN = Plan(
    resource_groups=(ResourceGroup(name="left", hosts=("a",)), ResourceGroup(name="right", hosts=("b",))),
    instance_groups=(
        InstanceGroup(name="day", resource_group="left"),
        InstanceGroup(name="night", resource_group="right"),
    ),
)
EPOCHS = 40
LONG = ("--epochs", str(EPOCHS), "--samples", "32")  # one update an epoch


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server with two hosts of two slots, each a resource group of its own."""
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.local_hosts": {"a": 2, "b": 2}}
    with LocalServer(tmp_path_factory.mktemp("halves"), traits=traits) as server:
        jobs = Jobs(server)
        jobs.client.set_plan(PLAN)
        yield jobs


@pytest.fixture(scope="module")
def undisturbed(halves: Jobs) -> str:
    """The final hash of the long training on one worker."""
    alone = halves.submit("cnn.py", *LONG, max_workers=1, instance_group="day").wait(300)
    return halves.final_hash(alone)


def held(job: Job) -> int:
    return job.refresh().view.slots


@pytest.mark.long
def test_a_job_moves_to_a_queue_over_other_hosts_and_ends_with_the_same_bits(
    halves: Jobs, undisturbed: str, tmp_path: Path
) -> None:
    gates = Gates(tmp_path / "gates", EPOCHS)
    job = halves.submit("cnn.py", *LONG, "--gates", str(gates.folder), instance_group="day")
    wait_for_hosts(job, "a")
    gates.open_until(lambda: len(halves.commits(job)) > 5, "updates on the first host", ready=2)
    assert job.update(instance_group="night").view.instance_group == "night"
    # A worker of the other host has to be there before the epochs are over.
    gates.open_until(lambda: hosts_of(job) == {"b"}, "the move to the other host", ready=3)
    before = len(halves.commits(job))
    gates.open_until(lambda: len(halves.commits(job)) > before, "updates on the other host")
    gates.open_all()
    job.wait(300)
    commits = [commit["update"] for commit in halves.commits(job)]
    assert commits == list(range(len(commits)))
    assert halves.final_hash(job) == undisturbed
    assert "instance group is now night (was day)" in repr(job.story())


@pytest.mark.long  # jupyter/api/test_plan.py: slots follow the plan while jobs run
def test_the_plan_changes_while_a_job_runs(halves: Jobs, undisturbed: str, tmp_path: Path) -> None:
    client = halves.client
    gates = Gates(tmp_path / "gates", EPOCHS)
    job = halves.submit("cnn.py", *LONG, "--gates", str(gates.folder), instance_group="day")
    wait_for_hosts(job, "a")
    until(lambda: held(job) == 2, "both slots of the left host")
    read = client.plan()
    everything = (ResourceGroup(name="left", hosts=("a", "b")), ResourceGroup(name="right", hosts=("c",)))
    wider = client.set_plan(msgspec.structs.replace(read, resource_groups=everything))
    gates.open_until(lambda: hosts_of(job) == {"a", "b"}, "workers on both hosts")
    until(lambda: held(job) == 4, "the slots of the right host too")
    gates.open_until(lambda: max(halves.worlds(job), default=0) >= 3, "updates of members on both hosts")
    with pytest.raises(ChangedMeanwhile):
        client.set_plan(msgspec.structs.replace(read, instance_groups=PLAN.instance_groups[:1]))
    assert client.plan() == wider
    client.set_plan(msgspec.structs.replace(wider, resource_groups=PLAN.resource_groups))
    gates.open_until(lambda: hosts_of(job) == {"a"}, "the right host given back")
    gates.open_all()
    job.wait(300)
    assert halves.final_hash(job) == undisturbed
