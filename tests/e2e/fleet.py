"""Machines of a test that join a server as hosts: each has a network, a disk, pids and a name of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from edt_sdk import Job
from edt_sdk.schemas.wire.zygote import ZYGOTE_OPTION
from edt_sdk.testing import LocalServer
from tests.e2e.gates import Gates
from tests.e2e.harness import Jobs
from tests.e2e.hosts import hosts_of
from tests.network import Network
from tests.waiting import until

HEAD, PORT = "head", 8790
EPOCHS = 40
ARGUMENTS = ("--epochs", str(EPOCHS), "--samples", "100")


class Machines:
    """Machines of a network, and a server on its machine "head", which has no slots of its own by default.

    `more` are further settings of the server, and `options` those of `LocalServer`.
    """

    def __init__(
        self, network: Network, folder: Path, *, slots: int = -1, more: Mapping[str, object] = {}, **options: Any
    ) -> None:
        self.network = network
        self.folder = folder
        traits = {
            "EdtApp.threads_per_slot": 1,
            "EdtApp.local_slots": slots,
            "EdtApp.fleet_listen": f"{network.addresses[HEAD]}:{PORT}",
            "EdtApp.checkpoint_interval": 1.0,
            **more,
        }
        self.server = LocalServer(folder / "server", traits=traits, **options)
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def serving(self) -> Iterator[Jobs]:
        """The server runs, and this thread is on its machine."""
        with self.network.inside(HEAD), self.server:
            yield Jobs(self.server)

    def join(self, jobs: Jobs, name: str, *options: str, slots: int = 1) -> None:
        """Have a machine join, or join again, with more options, and wait until its slots are offered."""
        self.start(jobs, name, *options, slots=slots)
        until(lambda: offered(jobs, name) == slots, f"the slots of {name}")

    def start(self, jobs: Jobs, name: str, *options: str, slots: int = 1, env: Mapping[str, str] | None = None) -> None:
        """Start the agent of a machine, with more options and variables. The first time with a token of the server."""
        folder = self.folder / name
        command = [sys.executable, "-P", "-m", "edt_server.agent", "join", "--folder", str(folder)]
        command += ["--slots", str(slots), *options]
        if not (folder / "agent.json").exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            (folder / "token").write_text(jobs.client.host_token().token)
            command += ["--token-file", str(folder / "token")]
        # No machine sees the folder of another one. Each has the code of the jobs' tests.
        others = [self.server.data_dir, *(path for path in self.folder.iterdir() if path.is_dir() and path != folder)]
        hidden = [path for path in others if path.exists() and path.name not in ("server", "gates")]
        self.agents[name] = self.network.start(
            name, command, log=self.folder / f"{name}.log", environ={**os.environ, **(env or {})}, hidden=hidden
        )

    def leave(self, name: str) -> None:
        """Let the agent of a machine end. Its jobs leave before."""
        os.kill(self.network.pid(name, 1), signal.SIGTERM)
        self.agents[name].wait()

    def crash(self, name: str) -> None:
        """Kill everything on a machine at once."""
        self.network.kill(name)

    def forked(self, name: str) -> tuple[list[str], bool]:
        """The supervisors and outposts on a machine, and whether its agent has one template that forked all of them."""
        found = [process for pid in self.network.pids(name) if (process := psutil.Process(pid)).is_running()]
        below = {process.pid: process.cmdline() for process in found if "below" in process.cmdline()}
        agents = {psutil.Process(pid).ppid() for pid in below}
        zygotes = [process for process in found if "edt_sdk.training.zygote" in process.cmdline()]
        templates = [process for process in zygotes if process.ppid() in agents]
        programs = sorted(words[words.index("below") + 2] for words in below.values())
        return programs, len(templates) == len(agents) == 1 and all(ZYGOTE_OPTION in words for words in below.values())

    def log(self, name: str) -> str:
        """What the agent of a machine has said."""
        return (self.folder / f"{name}.log").read_text()


def offered(jobs: Jobs, name: str) -> int:
    """How many slots of a host the server offers."""
    return sum(slot["host"] == name for slot in jobs.client.cluster()["slots"])


def committed(jobs: Jobs, job: Job) -> list[int]:
    """The updates in the commit log that the server has."""
    return [commit["update"] for commit in jobs.commits(job)]


def home_of(jobs: Jobs, job: Job) -> str:
    """The host of the job's supervisor, by the server's copy of its orders."""
    home: str = json.loads((jobs.private(job) / "launch.json").read_text())["host"]
    return home


def begun(jobs: Jobs, gates: Gates) -> Job:
    """Start the training of these tests, held at the begin of its epochs."""
    return jobs.submit("cnn.py", *ARGUMENTS, "--gates", str(gates.folder))


def opened(gates: Gates) -> int:
    """How many workers have opened the data set so far, which is the last thing before they are ready."""
    path = gates.folder / "opened"
    return len(path.read_text().split()) if path.exists() else 0


def on(jobs: Jobs, job: Job, gates: Gates, hosts: set[str], *, workers: int) -> None:
    """Let the job through until it is on these machines, once so many workers have been ready in all."""
    until(lambda: opened(gates) >= workers, f"{workers} workers that have opened the data set")
    gates.open_until(lambda: hosts_of(job) == hosts, f"workers on {' and '.join(hosts)}", ready=0)


def more_updates(jobs: Jobs, job: Job, gates: Gates, more: int = 3) -> None:
    """Let the job through until there are so many more updates."""
    goal = len(committed(jobs, job)) + more
    gates.open_until(lambda: len(committed(jobs, job)) >= goal, f"{more} more updates", ready=0)


def is_as_alone(jobs: Jobs, job: Job, alone: Job) -> None:
    """The job ends with the bits of one worker, and every update is in its log once."""
    job.wait(300)
    assert committed(jobs, job) == list(range(len(jobs.commits(alone))))
    assert jobs.file_hashes(job) == jobs.file_hashes(alone)
    for commit in jobs.commits(job):
        indices = [index for shard in commit["shards"] for index in shard["indices"]]
        assert len(indices) == len(set(indices))


def on_two_machines(machines: Machines, jobs: Jobs, gates: Gates) -> tuple[Job, str, str]:
    """A job on two machines, the one with its supervisor and its files, and the other."""
    for name in ("one", "two"):
        if name not in machines.agents or machines.agents[name].poll() is not None:
            machines.join(jobs, name)
    job = begun(jobs, gates)
    on(jobs, job, gates, {"one", "two"}, workers=2)
    more_updates(jobs, job, gates)
    near = home_of(jobs, job)
    return job, near, "two" if near == "one" else "one"
