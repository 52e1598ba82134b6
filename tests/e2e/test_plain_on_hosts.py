"""Plain jobs on two hosts: ranks on both, and the beginning again when one is lost."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from edt_sdk import Job
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.e2e.fleet import Machines, home_of
from tests.e2e.harness import Jobs
from tests.e2e.hosts import lose, wait_for_hosts
from tests.network import Network
from tests.waiting import until

# All ranks meet, write down that they did, and wait until they are let go.
MEETS = """
    import os, time
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    place = os.environ["RESULT_DIR"]
    with open(os.path.join(place, "sums"), "a") as file:
        file.write(f"{total.item():.0f}\\n")
    while not os.path.exists(os.path.join(place, "go")):
        time.sleep(0.02)
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    traits = {"EdtApp.threads_per_slot": 1, "EdtApp.local_hosts": {"a": 2, "b": 2}}
    with LocalServer(tmp_path_factory.mktemp("hosts"), traits=traits) as server:
        yield Jobs(server)


def sums(job: Job) -> list[str]:
    path = Path(job.view.result_dir) / "sums"
    return path.read_text().split() if path.exists() else []


@pytest.mark.long  # test_hosts.py loses hosts, test_plain_frameworks.py begins again
@pytest.mark.parametrize("lost", ["a", pytest.param("b", marks=pytest.mark.long)])
def test_ranks_on_both_hosts_begin_again_when_one_is_lost(two_hosts: Jobs, tmp_path: Path, lost: str) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(MEETS))
    job = two_hosts.client.submit(tmp_path, framework="distPyTorch", max_workers=4, progress=False)
    until(lambda: sums(job) == ["4"] * 4, "the sum of four ranks")
    wait_for_hosts(job, "a", "b")
    assert lose(two_hosts, lost) >= 2
    until(lambda: sums(job) == ["4"] * 8, "the sum of four ranks again")
    until(lambda: job.refresh().state is JobState.RUNNING, "the job to run")
    (Path(job.view.result_dir) / "go").touch()
    job.wait(300)
    began = [event.text for event in job.story() if event.kind == "run_started"]
    assert len(began) == 2
    assert "from the beginning" in began[1]


def test_one_process_runs_where_its_slots_are(two_hosts: Jobs, tmp_path: Path) -> None:
    job = two_hosts.client.submit(
        tmp_path, framework="PyTorch", max_workers=3, command="echo $WMLA_WORKER_NDEVICE slots", progress=False
    )
    job.wait(300)
    assert "3 slots" in str(job.logs())
    assert os.path.basename(job.view.result_dir) == job.id


def test_ranks_on_two_machines_meet_at_the_address_of_the_first(tmp_path: Path) -> None:
    script = """
        import os
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.ones(1)
        dist.all_reduce(total)
        print("rank", dist.get_rank(), "sum", int(total), "at", os.environ["MASTER_ADDR"])
        dist.destroy_process_group()
    """
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(textwrap.dedent(script))
    with Network("one", "two", "head") as network:
        machines = Machines(network, tmp_path)
        with machines.serving() as jobs:
            for name in ("one", "two"):
                machines.join(jobs, name)
            job = jobs.client.submit(code, framework="distPyTorch", max_workers=2, progress=False).wait(300)
            address, logs = network.addresses[home_of(jobs, job)], str(job.logs())
            assert [f"rank {rank} sum 2 at {address}" in logs for rank in (0, 1)] == [True, True]
