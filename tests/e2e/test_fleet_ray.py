"""A training on machines that the server asks of a running Ray cluster, and gives back. Needs EDT_RAY_PYTHON."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edt_sdk.testing import LocalServer
from tests.e2e.fleet import committed
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of
from tests.network import Network
from tests.waiting import until

pytestmark = pytest.mark.long
EPOCHS = 40
ARGUMENTS = ("--epochs", str(EPOCHS), "--samples", "300")
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_MEMORY_MONITOR": "1"}


@contextmanager
def ray_cluster(network: Network, folder: Path, python: str) -> Iterator[str]:
    """A Ray with a head without CPUs and two nodes, as `ray start` makes it. Yields its address."""
    address = f"{network.addresses['head']}:6379"
    temporary = f"/tmp/edt-ray-{os.getpid()}"  # sockets lie in it, so its name is short
    try:
        for name in ("head", "one", "two"):
            own = [f"--node-ip-address={network.addresses[name]}", "--object-store-memory=80000000", "--block"]
            head = ["--head", "--port=6379", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={temporary}"]
            own += head if name == "head" else [f"--address={address}", "--num-cpus=1"]
            home = folder / f"home-{name}"
            home.mkdir()
            words = (folder / f"ray-{name}.log").open("ab")
            with network.inside(name), words:
                subprocess.Popen(
                    [str(Path(python).with_name("ray")), "start", *own],
                    stdout=words,
                    stderr=words,
                    env={**os.environ, **_QUIET, "HOME": str(home), "XDG_DATA_HOME": str(home)},
                    cwd="/",
                )
            log = folder / f"ray-{name}.log"
            until(lambda log=log: "Ray runtime started" in log.read_text(), f"Ray on {name}")
        yield address
    finally:
        for name in ("head", "one", "two"):
            network.kill(name)
        subprocess.run(["rm", "-rf", temporary], check=False)


def test_a_training_has_the_nodes_that_ray_gives_and_gives_them_back(tmp_path: Path) -> None:
    python = os.environ.get("EDT_RAY_PYTHON", "")
    if not python:
        pytest.skip("This needs EDT_RAY_PYTHON, a Python with ray>=2.50,<3.")
    gates = Gates(tmp_path / "gates", EPOCHS)
    with Network("one", "two", "head") as network, ray_cluster(network, tmp_path, python) as address:
        ray = {"address": address, "max_hosts": 2, "cpus": 1, "slots": 1, "idle_after": 10.0, "poll": 0.5}
        traits = {
            "EdtApp.threads_per_slot": 1,
            "EdtApp.local_slots": -1,
            "EdtApp.fleet_listen": f"{network.addresses['head']}:8790",
            "EdtApp.providers": {"ray": {**ray, "driver": python, "command": sys.executable}},
        }
        with network.inside("head"), LocalServer(tmp_path / "server", traits=traits) as server:
            jobs = Jobs(server)
            alone = jobs.submit("cnn.py", *ARGUMENTS, max_workers=1).wait(300)
            job = jobs.submit("cnn.py", *ARGUMENTS, "--gates", str(gates.folder), max_workers=2)
            until(lambda: len(jobs.client.cluster()["slots"]) == 2, "a slot of each node of Ray")
            until(lambda: len((gates.folder / "opened").read_text().split()) == 2, "two workers that are ready")
            gates.open_until(lambda: len(hosts_of(job)) == 2, "workers on both nodes", ready=0)
            gates.open_all()
            job.wait(300)
            assert jobs.file_hashes(job) == jobs.file_hashes(alone)
            assert committed(jobs, job) == list(range(len(jobs.commits(alone))))
            until(lambda: not jobs.client.cluster()["slots"], "the end of machines without work")
