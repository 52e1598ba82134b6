"""What it takes until a machine is used, lost, given back, and its results are with the server: the targets of hosts.

Three machines (network namespaces with pids of their own) join a server on a fourth, which has no slots. A training of
the benchmarks' model (`linear_stack/`, 8 MB of model and optimizer) runs on two of them. Each round a machine

- joins: from the start of `edt host join`, with its key and its environment at hand, to its slot, and from the slot to
  the first update with its worker, for which its agent imports torch,
- loses all of its processes by SIGKILL: to the next committed update,
- is cut off, its cable pulled: to the next committed update. With `--silent 2` the server's `host_silent` is 2 s,
- is drained: to the moment when no job has a slot there. No update may be lost. Undone: to the next update with it,
- and the server is killed and started again: from its first answer until all hosts are up, by their own connection.

Beside it what an agent without work costs, and how long a file of 150 MB that a job has written needs to be on the
server, over a link of 1 Gbit/s. Needs root. Takes about four minutes (`--quick`: one). Prints a table, writes
`.bench/fleet.json`. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from benchmarks.commit_log import Commit
from benchmarks.our_jobs import OurJob
from benchmarks.report import ROOT, finish, table
from benchmarks.rescale import LARGE
from benchmarks.server_processes import wait_for
from benchmarks.summary import Check, duration, summarize
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.hosts import HostState
from edt_sdk.schemas.wire.control import HOST_SILENT
from tests.e2e.fleet import HEAD, Machines, offered
from tests.e2e.harness import Jobs
from tests.network import Network

NAMES = ("one", "two", "three")
GUEST = "two"  # the machine that comes and goes
MODEL = ("--updates", "100000")
LIMIT, POLL = 120.0, 0.01
RATE, LINK, SIZE = "1gbit", 125e6, 150_000_000  # as bytes a second, and the bytes of the file
IDLE = 20.0
JOINED = "join: slot → first update"
SPARE = "drain undone, torch is there → first update"
CUT = "cable pulled → next update"
TARGETS = {
    "join: process start → slot": 1.5,
    JOINED: math.inf,  # torch is imported there first
    "SIGKILL of a host → next update": 0.3,
    "drain → no slot in use": 1.0,
    "server's first answer → all hosts up": 2.0,
}
WRITER = f"""
import os, time
with open(os.path.join(os.environ["RESULT_DIR"], "large.bin"), "wb") as file:
    file.write(os.urandom({SIZE}))
    file.flush()
    os.fsync(file.fileno())
print("written", time.time(), flush=True)
"""


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--large", action="store_true", help="150 MB of state in place of 8, at 1 Gbit/s")
    parser.add_argument("--silent", type=float, default=HOST_SILENT, help="host_silent of the server (default 6)")
    options = parser.parse_args(arguments)
    folder = ROOT / "fleet"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    times: dict[str, list[float]] = defaultdict(list)
    with Network(*NAMES, HEAD) as network:
        machines = Machines(
            network, folder, more={"EdtApp.host_silent": options.silent, "EdtApp.checkpoint_interval": 30.0}
        )
        with machines.serving() as jobs:
            for name in NAMES:
                machines.join(jobs, name)
                if options.large:
                    network.limit(name, RATE)
            cpu, memory = idle_agent(network)
            with OurJob(machines.server, "fleet", (*MODEL, *(LARGE.arguments if options.large else ())), 2) as job:
                others = Guest(machines, jobs, job)
                for _ in range(1 if options.quick else options.repeat):
                    others.round(times)
                discarded = job.discarded()
            rate = spooled(machines, jobs, folder)
    rows = [["from → to", "measured", "target"]]
    checks = []
    # 8 s by default, and 3 s with 2.
    targets = {**TARGETS, CUT: 1.25 * options.silent + 0.5, SPARE: 2.0 if options.large else 1.0}
    for what, target in targets.items():
        found = summarize(times[what])
        assert found is not None
        wanted = target < math.inf
        rows.append([what, found.text(), f"≤ {duration(target)}" if wanted else ""])
        if wanted:
            checks.append(Check(f"{what}, median s", found.median, target, "at most"))
    checks += [
        Check("updates lost in drains", float(discarded), 0.0, "at most"),
        Check("agent without work, share of a core", cpu, 0.003, "at most"),
        Check("agent without work, MB", memory, 30.0, "at most"),
        Check("150 MB of results, share of the link", rate / LINK, 0.8, "at least"),
    ]
    print(table(rows))
    return finish("fleet", {"seconds": dict(times), "cpu": cpu, "memory": memory, "rate": rate}, checks)


class Guest:
    """A training on two machines, of which one comes and goes."""

    def __init__(self, machines: Machines, jobs: Jobs, job: OurJob) -> None:
        self._machines = machines
        self._jobs = jobs
        self._job = job
        # The third machine has nothing to do, and joins and leaves no job.
        jobs.client.drain_host("three")
        if self._home() == GUEST:
            raise SystemExit(f"the supervisor is on {GUEST}: start again")
        self._commit(lambda commits: commits[-1].world == 2, "two workers")

    def round(self, times: dict[str, list[float]]) -> None:
        """Let everything happen once."""
        begun = time.time()
        self._machines.crash(GUEST)
        lost = self._after(begun, world=1)
        times["SIGKILL of a host → next update"].append(lost - begun)
        # It is taken out by its lease at the latest, and joins a server that knows that.
        self._until(lambda: offered(self._jobs, GUEST) == 0, "the loss of the host")

        begun = time.time()
        self._machines.start(self._jobs, GUEST)
        self._until(lambda: offered(self._jobs, GUEST) == 1, "the slot")
        there = time.time()
        times["join: process start → slot"].append(there - begun)
        times[JOINED].append(self._after(there, world=2) - there)

        begun = time.time()
        self._machines.network.cut(GUEST)
        times[CUT].append(self._after(begun, world=1) - begun)
        self._machines.network.heal(GUEST)
        self._commit(lambda commits: commits[-1].world == 2, "two workers again")

        begun = time.time()
        self._jobs.client.drain_host(GUEST)
        self._until(lambda: self._jobs.client.host(GUEST).used == 0, "an empty host")
        times["drain → no slot in use"].append(time.time() - begun)
        self._after(begun, world=1)
        begun = time.time()
        self._jobs.client.drain_host(GUEST, undo=True)
        times[SPARE].append(self._after(begun, world=2) - begun)

        self._machines.server.kill()
        self._machines.server.start()
        begun = time.time()
        self._jobs.client = self._machines.server.client()
        self._job.job = self._jobs.client.job(self._job.job.id)
        up = {HostState.UP, HostState.DRAINING}
        self._until(lambda: all(host.state in up for host in self._jobs.client.hosts()), "hosts that are up")
        times["server's first answer → all hosts up"].append(time.time() - begun)
        self._after(begun, world=2)

    def _home(self) -> str:
        self._commit(lambda commits: bool(commits), "a first update")
        hosts = {each["rank"]: each["host"] for each in self._jobs.client.job(self._job.job.id).workers()}
        return str(hosts[0])

    def _after(self, moment: float, *, world: int) -> float:
        """Return when the first update after this moment was committed by so many workers."""
        found: list[float] = []

        def seen(commits: Sequence[Commit]) -> bool:
            found[:] = [each.time for each in commits if each.time > moment and each.world == world][:1]
            return bool(found)

        self._commit(seen, f"an update of {world} workers")
        return found[0]

    def _commit(self, condition: Callable[[list[Commit]], bool], what: str) -> None:
        self._job.log.wait(condition, what, lambda: "")

    @staticmethod
    def _until(condition: Callable[[], object], what: str) -> None:
        wait_for(lambda: bool(condition()), what, LIMIT, poll=POLL)


def idle_agent(network: Network) -> tuple[float, float]:
    """Return what the processes of a host without work use: the share of a core, and MB of their own memory."""
    processes = [psutil.Process(pid) for pid in network.pids("three")]

    def used() -> float:
        return sum(sum(each.cpu_times()[:2]) for each in processes)

    before = used()
    time.sleep(IDLE)
    share = (used() - before) / IDLE
    return share, sum(each.memory_full_info().pss for each in processes) / 1e6


def spooled(machines: Machines, jobs: Jobs, folder: Path) -> float:
    """Return the bytes a second with which a large file of a job comes to the server."""
    source = folder / "writer"
    source.mkdir()
    (source / "main.py").write_text(WRITER)
    for name in NAMES[:2]:
        machines.network.limit(name, RATE)
    jobs.client.drain_host("three")
    job = jobs.client.submit(source, main="main.py", framework=Framework.PYTORCH.value, progress=False)
    place = Path(job.view.result_dir)
    wait_for(lambda: any(each.stat().st_size == SIZE for each in place.rglob("large.bin")), "the file", LIMIT, POLL)
    there = time.time()
    job.wait(LIMIT)
    words = next(line for line in job.logs().splitlines() if "written" in line)
    return SIZE / (there - float(words.split()[-1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
