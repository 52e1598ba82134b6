"""From a decision to the supervisors that are told of it: fifty jobs, and events that change many of them at once.

The priority of one job goes up and down again, so that it takes slots from all the others in one event and gives them
back. Each grant and each revocation is one time: from the event's own time, which is the beginning of its transaction,
to the moment its job's supervisor has an allocation at least as new. Service, core, store and control channel are the
real ones; the supervisors are probes (`allocation_probe.py`): processes of their own that speak with the real reporter
and have no workers, so 200 slots fit any machine. What a worker hears comes over one Unix socket more.

Takes about a minute; `--quick` does two rounds. Writes `.bench/decision.json`; exit code 1 when the target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import io
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.allocation_probe import LOG
from benchmarks.report import ROOT, finish, table
from benchmarks.spread import Spread
from benchmarks.summary import Check
from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.job import JobPatch, JobSpec
from edt_sdk.schemas.wire.control import Launch
from edt_server.channel.spare_supervisors import Spare, SpareSupervisors
from edt_server.service import Service, open_service
from edt_server.settings import Settings
from edt_server.store import Store
from edt_server.supervisor.template import Kind
from edt_server.system.runtime import runtime_dir

TARGET = 0.050
USER = "anna"
LOW, HIGH = 5_000, 5_000_000
LIMIT = 120.0
PROBE = Path(__file__).with_name("allocation_probe.py")


class Probes(SpareSupervisors):
    """Spare supervisors that are probes."""

    def take(self, orders: Launch) -> Spare:
        """A probe for this job."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen([sys.executable, str(PROBE)], stdin=theirs, start_new_session=True)
        return Spare(Kind(orders.interpreter, orders.threads_per_slot), process, ours)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Return when `condition` is true; SystemExit by name after two minutes."""
    deadline = time.monotonic() + LIMIT
    while not await condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what}")
        await asyncio.sleep(0.05)


async def settled(service: Service) -> bool:
    """Whether all slots are with those who are to have them."""
    core = service._ledger.core
    # Asked in the thread that decides, and of nothing that reads: what is measured must not wait for who measures.
    return await service._writer.read(lambda: core.settled() and not core.free())


async def rounds(settings: Settings, package: Path, jobs: int, number: int) -> int:
    """Let the jobs run, and change the first one's priority `number` times; the event all that began behind."""
    async with open_service(settings) as service:
        try:
            # The seam that spare supervisors come through: everything else cannot tell the difference.
            service._supervision._spares = Probes(
                0, settings.runtime_dir, settings.interpreter, 1, settings.job_environ
            )
            spec = JobSpec(name="probe", main="main.py", max_workers=settings.local_slots)
            views = [await service.submit(USER, spec, package) for _ in range(jobs)]

            async def all_train() -> bool:
                return all([(await service.job(USER, view.id)).shards for view in views]) and await settled(service)

            await until(all_train, "all probes to have their slots")
            begun = (await service.timeline(USER, points=2))["rows"][-1]["seq"]
            for each in range(number):
                await service.change_settings(USER, views[0].id, JobPatch(priority=HIGH if each % 2 == 0 else LOW))
                await until(lambda: settled(service), "the change to be over")
            return int(begun)
        finally:
            await service.stop_all(USER)

            async def over() -> bool:
                return not service.busy

            await until(over, "the end of all jobs")


def told(settings: Settings, begun: int) -> dict[str, list[float]]:
    """Seconds from each decision behind event `begun` to its job's supervisor, by what it followed from."""
    store = Store.open(settings.store_url)
    decisions = store.events(kinds=[kinds.SLOT_GRANTED, kinds.SLOT_REVOKED], after=begun)
    causes = {event.seq: event.kind for event in store.events(kinds=kinds.INPUTS, after=begun)}
    store.close()
    heard: dict[str, list[tuple[int, float]]] = {}
    for path in settings.data_dir.glob(f"jobs/*/{LOG}"):
        lines = [line.split() for line in path.read_text().splitlines()]
        heard[path.parent.name] = [(int(version), float(when)) for version, when in lines]
    times: dict[str, list[float]] = {kinds.JOB_CHANGED: [], kinds.SLOT_RELEASED: []}
    for event in decisions:
        versions = heard[event.job or ""]
        place = bisect.bisect_left(versions, (event.seq, 0.0))
        cause = causes.get(event.cause or 0, "")
        if cause in times and place < len(versions):
            times[cause].append(versions[place][1] - event.time)
    return times


def empty_package(folder: Path) -> Path:
    """A package with a main script that never runs."""
    path = folder / "package.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("main.py"), io.BytesIO())
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50, help="that run at once (default 50)")
    parser.add_argument("--slots", type=int, default=200, help="they share (default 200)")
    parser.add_argument("--repeat", type=int, default=20, help="changes of the priority (default 20)")
    parser.add_argument("--quick", action="store_true", help="two changes")
    options = parser.parse_args()
    repeat = 2 if options.quick else options.repeat
    folder = ROOT / "decision"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data_dir = folder / "edt"
    settings = Settings(
        data_dir=data_dir,
        runtime_dir=runtime_dir(folder / "run", data_dir),
        local_slots=options.slots,
        threads_per_slot=1,
        warm_workers=0,
    )
    begun = asyncio.run(rounds(settings, empty_package(folder), options.jobs, repeat))
    times = told(settings, begun)
    names = {
        kinds.JOB_CHANGED: f"one event, {options.jobs} jobs: decision → supervisor",
        kinds.SLOT_RELEASED: "a slot left, one job: decision → supervisor",
    }
    spreads = {key: Spread.of(some) for key, some in times.items()}
    print(table([["what", "n", "median", "p99", "worst"], *(spreads[key].row(name) for key, name in names.items())]))
    check = Check("one event to all its jobs' supervisors, p99, s", spreads[kinds.JOB_CHANGED].p99, TARGET, "at most")
    return finish(
        "decision", {"spreads": {key: asdict(each) for key, each in spreads.items()}, "times": times}, [check]
    )


if __name__ == "__main__":
    sys.exit(main())
