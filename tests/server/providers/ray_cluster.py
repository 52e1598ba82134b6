"""A real Ray: a head and two nodes in network namespaces. Only where EDT_RAY_PYTHON is a Python with Ray."""

from __future__ import annotations

import os
from pathlib import Path

from tests.network import Network
from tests.ray_nodes import RayNodes
from tests.server.providers.engines import Engine
from tests.waiting import until


class RayEngine(Engine):
    """Two nodes with two CPUs each, and a head with none."""

    kind = "ray"

    def __init__(self, folder):
        super().__init__(folder)
        self.network = Network("head", "one", "two")
        self.ray = RayNodes(self.network, folder, {"RAY_health_check_initial_delay_ms": "0"})
        self.address, self.python, self.script = self.ray.address, self.ray.python, self.ray.script
        self.network.__enter__()
        self._wrapper = folder / "driver"
        for name in ("head", "one", "two"):
            self.ray.start(name, cpus=2)
        self.heal()
        until(lambda: len(self.ray.nodes()) == 3, "three nodes of Ray")

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
        self.ray.drain(self.ray.node_of(host_id), 90)

    def close(self):
        self.ray.close()
        self.network.close()

    def _drivers(self):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            if b"ray_child.py\0" in line and self.address.encode() in line:
                yield int(path.parent.name)
