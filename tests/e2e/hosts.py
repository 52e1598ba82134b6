"""Hosts of a server as the tests see them: agents by name, what runs below them, and how to lose one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from edt_sdk import Job
from edt_sdk.schemas.wire.agent import AgentAddress
from edt_server.system.processes import is_alive, parent_of
from tests.e2e.harness import Jobs
from tests.waiting import until


def agent(jobs: Jobs, host: str) -> AgentAddress:
    """The living agent of a host; waits for one."""

    def found() -> AgentAddress | None:
        try:
            path = jobs.server.data_dir / "control" / "hosts" / f"{host}.json"
            address = msgspec.json.decode(path.read_bytes(), type=AgentAddress)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return address if is_alive(address.identity) else None

    address: AgentAddress = until(found, f"an agent of host {host}")
    return address


def below(pid: int) -> set[int]:
    """All descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = parent_of(int(entry.name))
            except ProcessLookupError:
                continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def running(pids: set[int]) -> set[int]:
    """Those that have not ended."""
    alive = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            alive.add(pid)
    return alive


def lose(jobs: Jobs, host: str) -> int:
    """SIGKILL the agent of a host alone, and wait until everything below it is gone; how many processes that were."""
    pid = agent(jobs, host).identity.pid
    doomed = below(pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not running({pid, *doomed}), f"the end of everything on host {host}")
    return len(doomed)


def hosts_of(job: Job) -> set[str]:
    """Where the members of the job's generation are."""
    return {worker["host"] for worker in job.workers() if worker["rank"] is not None}


def wait_for_hosts(job: Job, *hosts: str) -> None:
    """Until the job trains on exactly these."""
    until(lambda: hosts_of(job) == set(hosts), f"workers on {' and '.join(hosts)}")
