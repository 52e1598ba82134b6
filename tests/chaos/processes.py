"""The living processes of a job, found without asking anybody: from its journal and from /proc."""

from __future__ import annotations

import contextlib
import json
import signal
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Processes:
    """What of a job runs now."""

    supervisors: tuple[psutil.Process, ...]
    drivers: tuple[psutil.Process, ...]
    workers: tuple[psutil.Process, ...]
    zygotes: tuple[psutil.Process, ...]

    @property
    def all(self) -> tuple[psutil.Process, ...]:
        """Everything."""
        return (*self.supervisors, *self.drivers, *self.workers, *self.zygotes)


def of_job(job_dir: Path) -> Processes:
    """The job whose machinery lies in `job_dir`."""
    reports = journal(job_dir)
    drivers = _living({r["pid"] for r in reports if r["type"] == "DriverStarted"})
    workers = _living({r["pid"] for r in reports if r["type"] == "WorkerStarted"})
    parents: dict[int, psutil.Process] = {}
    for process in (*drivers, *workers):
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            if parent is not None and "edt_server.supervisor" in " ".join(parent.cmdline()):
                parents[parent.pid] = parent
    # What workers are forked from, and what would take its place.
    zygotes = tuple(child for each in parents.values() for child in children(each, "edt_sdk.training.zygote"))
    return Processes(tuple(parents.values()), drivers, workers, zygotes)


def hit(process: psutil.Process, number: signal.Signals) -> bool:
    """Send a signal; False when it was gone already."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def journal(job_dir: Path) -> list[dict[str, object]]:
    path = job_dir / "journal.jsonl"
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line)["report"] for line in lines]


def children(parent: psutil.Process, module: str) -> tuple[psutil.Process, ...]:
    """Return the living children of a process that run this module."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in parent.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if module in " ".join(child.cmdline()):
                    found.append(child)
    return tuple(found)


def _living(pids: set[object]) -> tuple[psutil.Process, ...]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(str(pid)))
            # The number may be somebody else's by now.
            if process.status() != psutil.STATUS_ZOMBIE and "edt_sdk" in " ".join(process.cmdline()):
                found.append(process)
    return tuple(found)
