"""Services with real supervisors, that come and go over one data folder, and their jobs."""

from __future__ import annotations

from contextlib import asynccontextmanager

from edt_sdk.schemas.job import JobSpec
from edt_server.service import open_service as running
from tests.waiting import until_async

LIMIT = 90.0  # for what hangs, on a machine with much else to do


@asynccontextmanager
async def cleaned(settings):
    """Whatever happens inside, no job is left running."""
    try:
        yield
    finally:
        async with running(settings) as service:
            await service.stop_all("ann")
            await until_async(lambda: not service.busy, "the end of the jobs")
            for view in await service.jobs("ann"):
                await service._supervision.gone(view.id, LIMIT)


def spec(**changes):
    return JobSpec(**{"name": "job", "main": "train.py", "max_workers": 2, **changes})


async def driver_pid(service, job):
    """The driver's process, once it runs the main script."""
    said = service.paths(await service.mine("ann", job)).streams_dir / "driver.stdout"
    await until_async(lambda: said.exists() and said.read_bytes(), "the driver's first words")
    pids = []

    async def told():
        pids.extend(event.data["pid"] for event in await service.events("ann", job) if event.kind == "driver_started")
        return pids

    await until_async(told, "the driver's start in the list of events")
    return pids[0]


async def state_of(service, job):
    return (await service.job("ann", job)).state


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def replaced(service, job, attempt):
    """The job once a supervisor of this attempt is known; fails when the job has ended instead."""

    async def known():
        row = await service.mine("ann", job)
        assert not row.state.final, row.message
        return row if row.attempt == attempt and row.supervisor is not None else None

    return await until_async(known, f"attempt {attempt}")
