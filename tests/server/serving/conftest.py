"""A real edge with a file of its own, and replicas that end with the test."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import subprocess
import sys

import msgspec
import pytest
import requests

from edt_sdk.schemas.serving.edge_file import EdgeAddress, EdgeDeployment, EdgeFile, EdgeState, Key, Target
from edt_server.system.private_files import write_private
from edt_server.system.processes import stat_fields
from tests.server.serving.replicas import Replica
from tests.waiting import until


def key(name, *, expires=None):
    """A key as a caller has it, and as the edge knows it."""
    text = f"edtk_{name}_{secrets.token_urlsafe(32)}"
    return text, Key(id=name, sha256=hashlib.sha256(text.encode()).hexdigest(), expires=expires)


class RunningEdge:
    """The processes of an edge in a folder. `told` is what it was told last."""

    def __init__(self, folder, port=0):
        self.folder, self.port = folder, port
        self.inner = ""
        self.told = ()
        self.http = requests.Session()
        self.log = folder / "edge.log"
        self.tell(wait=False)
        self.start()

    def start(self):
        command = [sys.executable, "-P", "-m", "edt_server.serving"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(self.folder / "edge.json"), "127.0.0.1", str(self.port)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: self.address is not None and self.address.identity.pid == self.process.pid, "the address")
        self.url = self.address.url
        until(lambda: self.get("/v2/health/ready").ok, "the edge")

    @property
    def address(self):
        file = self.folder / "edge-address.json"
        return msgspec.json.decode(file.read_bytes(), type=EdgeAddress) if file.exists() else None

    @property
    def child(self):
        """The pid of the process that answers."""
        parents = {int(pid): stat_fields(int(pid))[1] for pid in os.listdir("/proc") if pid.isdecimal() and alive(pid)}
        return next((pid for pid, parent in parents.items() if int(parent) == self.process.pid), None)

    def tell(self, *deployments, wait=True):
        """Write the file, and return when the edge has read it: it knows the new inner key then."""
        self.told, self.inner = deployments, secrets.token_urlsafe(32)
        sha = hashlib.sha256(self.inner.encode()).hexdigest()
        write_private(
            self.folder / "edge.json", msgspec.json.encode(EdgeFile(deployments=deployments, inner_sha256=sha))
        )
        if wait:
            until(lambda: self.get("/edt/state").ok, "the edge to read its file")

    def target(self, name="digits", **more):
        """A target with a socket of that name."""
        defaults = {"job": f"job-{name}", "revision": 1, "version": "digits/3", "socket": str(self.folder / name)}
        return Target(**{**defaults, **more})

    def deploy(self, *targets, wait=True, **more):
        """Tell the edge of one public deployment, digits."""
        self.tell(EdgeDeployment(**{"name": "digits", "targets": targets, "public": True, **more}), wait=wait)

    def get(self, path, **more):
        headers = {"X-EDT-Inner": self.inner, **more.pop("headers", {})}
        return self.http.get(f"{self.url}{path}", headers=headers, timeout=60, **more)

    def post(self, path="/predict/digits", data=b"1", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return requests.post(f"{self.url}{path}", data=data, headers=named, timeout=60)

    def counters(self, name="digits"):
        return msgspec.json.decode(self.get("/edt/state").content, type=EdgeState, strict=False).targets.get(
            f"job-{name}"
        )

    def connected(self, number=1, name="digits"):
        until(lambda: self.counters(name).replicas == number, f"{number} replicas")

    def stop(self):
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0
        assert "Traceback" not in self.log.read_text()


def alive(pid):
    try:
        return stat_fields(int(pid))[0] not in "ZX"
    except ProcessLookupError:
        return False


@pytest.fixture(scope="module")
def shared_edge(tmp_path_factory):
    running = RunningEdge(tmp_path_factory.mktemp("edge"))
    yield running
    running.stop()


@pytest.fixture
def edge(shared_edge):
    """An edge that other tests of the file have used, without deployments."""
    shared_edge.tell()
    return shared_edge


@pytest.fixture
def start():
    """Start replicas, which end with the test."""
    started = []

    def begin(path, *args, **more):
        replica = Replica(str(getattr(path, "socket", path)), *args, **more)
        started.append(replica)
        replica.start()
        return replica

    yield begin
    for each in started:
        each.close()
