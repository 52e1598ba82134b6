"""A real Ray on machines of a network, as `ray start` makes it. Only where EDT_RAY_PYTHON is a Python with Ray."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.network import Network
from tests.waiting import until

HEAD, PORT = "head", 6379
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_MEMORY_MONITOR": "1"}
_DRAIN = """
import sys, time
from ray._raylet import GcsClient
now = time.time()
deadline = int((now + float(sys.argv[3])) * 1000)
assert GcsClient(address=sys.argv[1]).drain_node(sys.argv[2], 2, "spot market", deadline)[0]
print(now)
"""
_NODES = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print(*(f"{each['NodeManagerAddress']} {each['NodeID']}" for each in ray.nodes() if each["Alive"]), sep="\\n")
"""
_NODE_OF = """
import sys, ray
ray.init(address=sys.argv[1], namespace="edt", log_to_driver=False, logging_level="ERROR")
print(ray.get(ray.get_actor(sys.argv[2]).poll.remote())["node"])
"""


class RayNodes:
    """One Ray on the machines of a network, as a context manager. Skips the test where there is no Ray.

    Its head, without CPUs by default, is the machine "head".

    Args:
        network: its machines.
        folder: for logs. Each node has a home in it.
        environ: more variables of all nodes.
    """

    def __init__(self, network: Network, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.python = os.environ.get("EDT_RAY_PYTHON", "")
        if not self.python:
            pytest.skip("This needs EDT_RAY_PYTHON, a Python with ray>=2.50,<3.")
        self.address = f"{network.addresses[HEAD]}:{PORT}"
        self.network = network
        self._folder = folder
        self.programs: dict[str, subprocess.Popen[bytes]] = {}
        # Sockets lie in it, so its name is short.
        self.temporary = Path(tempfile.mkdtemp(prefix="edt-ray-", dir="/tmp"))
        self.environ = {**os.environ, **_QUIET, **(environ or {}), "RAY_TMPDIR": str(self.temporary)}

    def __enter__(self) -> RayNodes:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self, name: str, *role: str, cpus: int = 1) -> float:
        """Start Ray on a machine where nothing else runs, and return when that began, as `time.time` has it.

        The head comes first, the others one after the other. A node ends if its helpers have not answered after 15 s.
        That is short on a machine with much else to do, so there may be more than one try.
        """
        if not role and name == HEAD:
            role = ("--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false")
        elif not role:
            role = (f"--address={self.address}", f"--num-cpus={cpus}")
        own = [f"--node-ip-address={self.network.addresses[name]}", "--object-store-memory=80000000", "--block"]
        home = self._folder / f"home-{name}"
        home.mkdir(exist_ok=True)
        log = self._folder / f"ray-{name}.log"
        while True:
            begun = time.time()
            with self.network.inside(name), log.open("wb") as words:
                program = self.programs[name] = subprocess.Popen(
                    [str(Path(self.python).with_name("ray")), "start", *role, *own],
                    stdout=words,
                    stderr=words,
                    env={**self.environ, "HOME": str(home), "XDG_DATA_HOME": str(home)},
                    cwd="/",
                    start_new_session=True,
                )
            # Linux gives each session an equal share of the cores, and a node of Ray is one session of many processes.
            with contextlib.suppress(OSError):
                Path(f"/proc/{program.pid}/autogroup").write_text("-8")
            started = lambda: "Ray runtime started" in log.read_text()  # noqa: E731
            until(lambda: started() or program.poll() is not None, f"Ray on {name}")  # noqa: B023
            if started():
                return begun
            assert "timed out during startup" in log.read_text(), log.read_text()
            self.kill(name)

    def kill(self, name: str) -> None:
        """Kill everything on a machine at once."""
        self.network.kill(name)
        if name in self.programs:
            self.programs.pop(name).wait()

    def script(self, source: str, *arguments: str) -> str:
        """Return what a program with Ray writes on the head."""
        with self.network.inside(HEAD):
            ended = subprocess.run(
                [self.python, "-c", source, *arguments], capture_output=True, text=True, check=True, cwd="/",
                env=self.environ,
            )  # fmt: skip
        return ended.stdout

    def nodes(self) -> dict[str, str]:
        """Return the living nodes by their addresses."""
        return dict(line.split() for line in self.script(_NODES, self.address).splitlines())

    def node_of(self, host_id: str) -> str:
        """Return the node of a host that the provider has started."""
        return self.script(_NODE_OF, self.address, host_id).strip()

    def drain(self, node: str, seconds: float) -> float:
        """Announce that a node is taken away after so many seconds, and return when that was, as `time.time` has it."""
        return float(self.script(_DRAIN, self.address, node, str(seconds)))

    def close(self) -> None:
        """End all nodes, the head last."""
        for name in reversed(self.programs.copy()):
            self.kill(name)
        subprocess.run(["rm", "-rf", str(self.temporary)], check=False)
