"""The least a supervisor can be: it speaks with the server as one does, and notes when each allocation came.

Reads the path of its orders from stdin, as a spare supervisor does. Reporter, journal and control channel are the
supervisor's own; there are no processes behind it. What it is told to leave it has left at once. Each allocation is a
line `<version> <seconds since the epoch>` of `allocations.log` in the job's folder.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import msgspec

from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire.control import (
    Allocation,
    DriverStarted,
    JobEnded,
    Launch,
    Report,
    SlotReturned,
    StopJob,
    ToSupervisor,
    TrainingStarted,
)
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.supervisor.journal import Journal
from edt_server.supervisor.reporter import Reporter
from edt_server.system.processes import identify
from edt_server.system.steady_clock import SteadyClock

LOG = "allocations.log"
SHARDS = 1024


class Probe:
    """One job's."""

    def __init__(self, orders: Launch) -> None:
        paths = JobPaths(Path(orders.data_dir), orders.owner, orders.job_id)
        self._journal = Journal(paths.journal)
        self._held: set[int] = set()
        self._log = (paths.job_dir / LOG).open("a", buffering=1)
        self._over = asyncio.Event()
        self._reporter = Reporter(
            orders,
            identify(os.getpid()),
            self._journal,
            SteadyClock(),
            holding=lambda: tuple(sorted(self._held)),
            on_message=self._said,
        )

    async def run(self) -> None:
        """Be there until the job is to end."""
        self._report(DriverStarted(pid=os.getpid()))
        self._report(TrainingStarted(training=0, shards=SHARDS, epochs=1))
        talking = asyncio.create_task(self._reporter.run())
        await self._over.wait()
        await self._reporter.delivered()
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)

    def _said(self, message: ToSupervisor) -> None:
        now = time.time()
        match message:
            case Allocation(version=version, slots=slots):
                self._log.write(f"{version} {now!r}\n")
                allowed = {slot.id for slot in slots}
                left, self._held = self._held - allowed, allowed
                for slot in sorted(left):
                    self._report(SlotReturned(slot=slot, worker=None, exit_code=None))
            case StopJob(why=why) if not self._over.is_set():
                self._report(JobEnded(state=JobState.KILLED, message=why))
                self._over.set()

    def _report(self, report: Report) -> None:
        self._reporter.report(self._journal.last + 1, report)


async def _main(orders: Launch) -> None:
    await Probe(orders).run()


if __name__ == "__main__":
    path = sys.stdin.readline().strip()
    if path:
        asyncio.run(_main(msgspec.json.decode(Path(path).read_bytes(), type=Launch)))
