"""Services with real supervisors, that come and go over one data folder, and their jobs."""

from __future__ import annotations

from contextlib import asynccontextmanager

from edt_sdk.schemas.frameworks import Framework
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
    """A plain job of one slot; an elastic one imports torch, which is most of what it costs."""
    return JobSpec(**{"name": "job", "main": "train.py", "max_workers": 1, "framework": Framework.PYTORCH, **changes})


async def main_pid(service, job):
    """The process of the main script, once it runs: a plain job's only one, or the driver."""
    elastic = (await service.mine("ann", job)).spec.framework == Framework.EDT
    stream, kind = ("driver.stdout", "driver_started") if elastic else ("worker-0.stdout", "run_started")
    said = service.paths(await service.mine("ann", job)).streams_dir / stream
    await until_async(lambda: said.exists() and said.read_bytes(), "the main script's first words")

    async def told():
        events = [event.data for event in await service.events("ann", job) if event.kind == kind]
        return next((data["pid"] if elastic else data["pids"][0] for data in events), None)

    return await until_async(told, "the main script's start in the list of events")


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
