"""The verbs that change a job, and with each other: what they answer, and that a job which is resumed while it is
deleted is the one or the other, and never goes on without its files or its row.
"""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobState
from edt_server.files import job_files
from tests.server.service.running import cleaned, running, spec, state_of
from tests.waiting import LIMIT, until_async

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def stopped(settings, package):
    """A service, and a job that was stopped and could be resumed."""
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(framework="PyTorch", max_workers=1), package)).id
        await service.stop_job("ann", job)

        async def killed():
            return await state_of(service, job) is JobState.KILLED

        await until_async(killed, "the end of the job")
        assert await service._supervision.gone(job, LIMIT)
        yield service, job


async def test_the_answer_is_the_job_with_all_that_followed(stopped):
    service, job = stopped
    assert (await service.resume("ann", job)).state is JobState.LAUNCHING  # there is a free slot, which it has


async def test_what_was_resumed_meanwhile_is_not_deleted(stopped, monkeypatch):
    service, job = stopped
    gone = service._supervision.gone

    async def and_then_it_is_resumed(which, patience):
        found = await gone(which, patience)
        monkeypatch.undo()
        await service.resume("ann", job)
        return found

    monkeypatch.setattr(service._supervision, "gone", and_then_it_is_resumed)
    with pytest.raises(Conflict, match="Stop it first"):
        await service.delete("ann", job)
    assert not (await service.job("ann", job)).state.final
    assert service.paths(await service.mine("ann", job)).submitted.is_dir()


async def test_what_is_being_deleted_is_not_resumed(stopped, monkeypatch):
    service, job = stopped
    loop = asyncio.get_running_loop()
    refused = []

    def while_it_is_resumed(paths):
        for verb in (service.resume, service.delete):
            with pytest.raises(Conflict, match="is being deleted") as raised:
                asyncio.run_coroutine_threadsafe(verb("ann", job), loop).result(LIMIT)
            refused.append(raised.value)
        real(paths)

    real = job_files.remove
    monkeypatch.setattr(job_files, "remove", while_it_is_resumed)
    await service.delete("ann", job)
    assert len(refused) == 2
    with pytest.raises(NotFound):
        await service.job("ann", job)
    assert await service.jobs("ann") == []
    assert job not in service._ledger.core.jobs


async def test_one_that_could_not_be_deleted_can_be_resumed(stopped, monkeypatch):
    service, job = stopped

    def no_way(paths):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as change:
        change.setattr(job_files, "remove", no_way)
        with pytest.raises(PermissionError):
            await service.delete("ann", job)
    assert not (await service.resume("ann", job)).state.final


async def test_one_that_is_being_stopped_is_not_resumed(settings, package, monkeypatch):
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(framework="PyTorch", max_workers=1), package)).id

        async def runs():
            return await state_of(service, job) is JobState.RUNNING

        await until_async(runs, "its script")
        with monkeypatch.context() as before_it_is_heard:
            before_it_is_heard.setattr(service._supervision, "end", lambda job, why: None)
            await service.stop_job("ann", job)
            with pytest.raises(Conflict, match="is being stopped") as refused:
                await service.resume("ann", job)
        assert "edt wait" in refused.value.hint
        await service.stop_job("ann", job)

        async def killed():
            return await state_of(service, job) is JobState.KILLED

        await until_async(killed, "the end of the job")
        assert await service._supervision.gone(job, LIMIT)
        assert (await service.resume("ann", job)).state is JobState.LAUNCHING
