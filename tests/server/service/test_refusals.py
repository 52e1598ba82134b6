"""What a service refuses leaves everything as it was: jobs of others, queues that there are not, changes that fail."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.errors import NotAllowed, NotFound, Unprocessable
from edt_sdk.schemas.job import JobPatch
from edt_server.ledger import reports
from tests.server.service.running import cleaned, running, spec

pytestmark = pytest.mark.asyncio


async def test_only_the_owner_may(settings, package):
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(), package)).id
        for verb in (
            service.job, service.stop_job, service.suspend, service.resume, service.delete, service.events,
            service.timeline, service.workers, service.checkpoints,
        ):  # fmt: skip
            with pytest.raises(NotAllowed):
                await verb("bob", job)
        with pytest.raises(NotAllowed):
            await service.change_settings("bob", job, JobPatch(priority=1))
        with pytest.raises(NotAllowed):
            await service.result("bob", job, "all")
        with pytest.raises(NotFound):
            await service.job("ann", "nobody-knows")


async def test_a_change_that_fails_leaves_store_and_core_as_they_were(settings, package):
    async with cleaned(settings), running(settings) as service:
        await service.submit("ann", spec(), package)
        digest, seq = service._ledger.core.digest(), service._ledger.seq

        def work(change):
            change.apply(reports.JobDemand(next(iter(change.core.jobs)), 2))
            raise RuntimeError("disk full")

        with pytest.raises(RuntimeError):
            await service.change(work)
        assert (service._ledger.core.digest(), service._ledger.seq) == (digest, seq)
        assert all(event.kind != "job_demand" for event in service._ledger.store.events())


async def test_unknown_queue_names_the_known(settings, package):
    async with running(settings) as service:
        with pytest.raises(Unprocessable, match="default"):
            await service.submit("ann", spec(instance_group="x"), package)
        assert await service.jobs("ann") == []
