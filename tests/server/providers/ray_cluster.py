"""A real Ray: a head and two nodes in network namespaces. Only where EDT_RAY_PYTHON is a Python with Ray."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.network import Network
from tests.server.providers.engines import Engine
from tests.waiting import until

_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_MEMORY_MONITOR": "1", "RAY_health_check_initial_delay_ms": "0"}
_DRAIN = """
import sys, time, ray
from ray._raylet import GcsClient
deadline = int(time.time() * 1000) + 90_000
print(GcsClient(address=sys.argv[1]).drain_node(sys.argv[2], 2, "spot market", deadline))
"""
_NODES = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print(*(each["NodeID"] for each in ray.nodes() if each["Alive"]), sep="\\n")
"""
_NODE_OF = """
import sys, ray
ray.init(address=sys.argv[1], namespace="edt", log_to_driver=False, logging_level="ERROR")
print(ray.get(ray.get_actor(sys.argv[2]).poll.remote())["node"])
"""


class RayEngine(Engine):
    """Two nodes with two CPUs each, and a head with none."""

    kind = "ray"

    def __init__(self, folder):
        python = os.environ.get("EDT_RAY_PYTHON", "")
        if not python:
            pytest.skip("This needs EDT_RAY_PYTHON, a Python with ray>=2.50,<3.")
        super().__init__(folder)
        self.python = python
        self.network = Network("head", "one", "two")
        self.network.__enter__()
        self._programs = []
        self.address = f"{self.network.addresses['head']}:6379"
        # Sockets lie in it, so its name is short.
        self._temp = Path(f"/tmp/edt-ray-{os.getpid()}")
        self._wrapper = folder / "driver"
        head = ["--head", "--port=6379", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self._temp}"]
        self._node("head", *head)
        # One after the other: a node whose head is busy gives up.
        for name in ("one", "two"):
            self._node(name, f"--address={self.address}", "--num-cpus=2")
        self.heal()
        until(lambda: self.script(_NODES, self.address).count("\n") == 3, "three nodes of Ray")

    def settings(self):
        return {"address": self.address, "driver": str(self._wrapper), "cpus": 2}

    def break_(self):
        """Take the driver away: the one that runs, and the program."""
        self._wrapper.unlink()
        for pid in self._drivers():
            os.kill(pid, 9)

    def heal(self):
        self._wrapper.write_text(f'#!/bin/sh\nexec ip netns exec {self.network._prefix}head {self.python} "$@"\n')
        self._wrapper.chmod(0o755)

    async def notice(self, host_id):
        self.drain(self.node_of(host_id))

    def drain(self, node):
        assert "True" in self.script(_DRAIN, self.address, node)

    def node_of(self, host_id):
        """Return the node of a machine."""
        return self.script(_NODE_OF, self.address, host_id).strip()

    def script(self, source, *arguments):
        """Return what a program with Ray writes, beside the head."""
        with self.network.inside("head"):
            ended = subprocess.run(
                [self.python, "-c", source, *arguments], capture_output=True, text=True, check=False, cwd="/",
                env={**os.environ, **_QUIET},
            )  # fmt: skip
        return ended.stdout

    def close(self):
        self.network.close()
        for program in self._programs:
            program.wait()
        subprocess.run(["rm", "-rf", str(self._temp)], check=False)

    def _drivers(self):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            if b"ray_child.py\0" in line and self.address.encode() in line:
                yield int(path.parent.name)

    def _node(self, name, *arguments):
        address = f"--node-ip-address={self.network.addresses[name]}"
        ray = [str(Path(self.python).with_name("ray")), "start", "--block", address, *arguments]
        ray += ["--object-store-memory=80000000", "--disable-usage-stats"]
        with self.network.inside(name), (self.folder / f"{name}.log").open("ab") as words:
            self._programs.append(
                subprocess.Popen(ray, stdout=words, stderr=words, env={**os.environ, **_QUIET}, cwd="/")
            )
        until(lambda: "Ray runtime started" in (self.folder / f"{name}.log").read_text(), f"the node {name} of Ray")
