"""A training on machines that the server asks of a running Ray cluster, and gives back. Needs EDT_RAY_PYTHON."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from edt_sdk import Job
from edt_sdk.schemas.hosts import HostState
from edt_sdk.testing import LocalServer
from tests.e2e.fleet import committed, home_of
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of
from tests.kernels import on_unix_sockets
from tests.network import Network
from tests.ray_nodes import RayNodes
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
PAGE = Path(__file__).parents[2] / "docs" / "providers.md"
EPOCHS = 40
ARGUMENTS = ("--epochs", str(EPOCHS), "--samples", "300")


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """A Ray with a head without CPUs and two nodes."""
    folder = tmp_path_factory.mktemp("ray")
    with Network("one", "two", "head") as network, RayNodes(network, folder) as nodes:
        for name in ("head", "one", "two"):
            nodes.start(name)
        yield nodes


@pytest.fixture(scope="module")
def jobs(ray: RayNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server beside the head, without slots of its own."""
    settings = {"address": ray.address, "max_hosts": 2, "cpus": 1, "slots": 1, "idle_after": 10.0, "poll": 0.5}
    traits = {
        "EdtApp.threads_per_slot": 1,
        "EdtApp.local_slots": -1,
        "EdtApp.fleet_listen": f"{ray.network.addresses['head']}:8790",
        "EdtApp.providers": {"ray": {**settings, "driver": ray.python, "command": sys.executable}},
    }
    root = tmp_path_factory.mktemp("server")
    with ray.network.inside("head"), LocalServer(root, traits=traits) as server:
        yield Jobs(server)


@pytest.fixture(scope="module")
def alone(jobs: Jobs) -> Job:
    """The same training on one worker, the first one that needs a machine."""
    job = jobs.submit("cnn.py", *ARGUMENTS, max_workers=1)
    until(lambda: any(host.state is HostState.STARTING for host in jobs.client.hosts()), "a machine that is asked for")
    asked = time.monotonic()
    until(lambda: jobs.client.cluster()["slots"], "its slot")
    print(f"{time.monotonic() - asked:.1f} s from the wish for a machine to its slot")
    return job.wait(300)


def on_both_nodes(jobs: Jobs, gates: Gates) -> Job:
    """A job with a worker on each node of Ray."""
    job = jobs.submit("cnn.py", *ARGUMENTS, "--gates", str(gates.folder), max_workers=2)
    until(lambda: len(jobs.client.cluster()["slots"]) == 2, "a slot of each node of Ray")
    until(lambda: (gates.folder / "opened").exists(), "a worker that is ready")
    until(lambda: len((gates.folder / "opened").read_text().split()) == 2, "two workers that are ready")
    gates.open_until(lambda: len(hosts_of(job)) == 2, "workers on both nodes", ready=0)
    return job


def is_as_alone(jobs: Jobs, job: Job, alone: Job) -> None:
    """The job ends with the bits of one worker. Every update is in its log once, and none was computed twice."""
    job.wait(300)
    assert jobs.file_hashes(job) == jobs.file_hashes(alone)
    assert committed(jobs, job) == list(range(len(jobs.commits(alone))))
    assert not (jobs.private(job) / "training-0.discarded.jsonl").exists()
    # All members that left did so between two updates.
    assert not any(event.kind == "worker_lost" for event in job.story())


def test_a_training_has_the_nodes_that_ray_gives_and_gives_them_back(jobs: Jobs, alone: Job, tmp_path: Path) -> None:
    gates = Gates(tmp_path / "gates", EPOCHS)
    job = on_both_nodes(jobs, gates)
    gates.open_all()
    is_as_alone(jobs, job, alone)
    until(lambda: not jobs.client.cluster()["slots"], "the end of machines without work")


def test_a_training_leaves_a_node_that_ray_drains(jobs: Jobs, ray: RayNodes, alone: Job, tmp_path: Path) -> None:
    gates = Gates(tmp_path / "gates", EPOCHS)
    job = on_both_nodes(jobs, gates)
    # The node with the job's supervisor, which has to move too.
    leaving = home_of(jobs, job)
    (staying,) = hosts_of(job) - {leaving}
    ray.drain(ray.node_of(leaving), 30)
    gates.open_until(lambda: hosts_of(job) == {staying}, "the other node alone", ready=0)
    until(lambda: leaving not in {slot["host"] for slot in jobs.client.cluster()["slots"]}, "the end of the machine")
    gates.open_all()
    is_as_alone(jobs, job, alone)


def test_the_lines_of_the_guide_lead_to_a_training_on_two_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text(encoding="utf-8").partition("\n## Ray\n")[2].partition("\n## ")[0]
    shell = "".join(re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)).splitlines()
    configuration, cell = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    install, *starts = map(shlex.split, shell)
    assert install == ["pip", "install", "jupyter-edt[ray]"]
    with Network("head", "two") as network, RayNodes(network, tmp_path) as ray:
        # The line itself would need a release. Whoever runs this test has installed a checkout in that way.
        installed = [ray.python, "-c", "import edt_server, jupyter_server, ray"]
        if subprocess.run(installed, cwd="/", check=False, capture_output=True).returncode:
            pytest.skip('This needs EDT_RAY_PYTHON to have jupyter-edt: pip install -e ".[ray]".')
        # Without the dashboard, which makes the head slow to start.
        for name, (_, _, *role), more in zip(("head", "two"), starts, (["--include-dashboard=false"], []), strict=True):
            ray.start(name, *(word.replace("10.0.0.1", network.addresses["head"]) for word in role), *more)
        configured = tmp_path / "server" / "config" / "jupyter_server_config.py"
        configured.parent.mkdir(parents=True)
        # A namespace has an address and no name in the DNS.
        more = f"c.EdtApp.fleet_addresses = [{network.addresses['head'] + ':8790'!r}]\nc.EdtApp.threads_per_slot = 1\n"
        configured.write_text(configuration + more)
        own = {"python": ray.python, "environ": {"RAY_TMPDIR": str(ray.temporary)}}
        with network.inside("head"), LocalServer(tmp_path / "server", slots=-1, **own) as server:
            client = server.client()
            until(lambda: len({slot["host"] for slot in client.cluster()["slots"]}) == 2, "slots of two machines")
            monkeypatch.setenv("EDT_URL", server.url)
            monkeypatch.setenv("EDT_TOKEN", server.token)
            cells = map(nbformat.v4.new_code_cell, ("%load_ext edt_sdk\n%edt_hosts", cell))
            notebook = nbformat.v4.new_notebook(cells=list(cells))
            NotebookClient(notebook, timeout=300, config=on_unix_sockets()).execute()
            (job,) = client.jobs()
            hosts = {slot["id"]: slot["host"] for slot in client.cluster()["slots"]}
            formed = [event.data["slots"] for event in job.story() if event.kind == "generation"]
            assert any(len({hosts[slot] for slot in each}) == 2 for each in formed)
