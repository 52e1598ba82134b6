"""The machine lacks something when a job is to start: it is tried again. Only a fault of the job itself ends it."""

from __future__ import annotations

import errno
import os

import pytest

from edt_sdk.schemas.job import JobState
from edt_server.channel import supervision
from tests.server.service.running import cleaned, main_pid, running, spec, state_of
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


@pytest.fixture
def starts(monkeypatch):
    """Supervisors cannot be started while there is an error in this list."""
    errors, launch = [], supervision.launch

    def fail(*given):
        if number := next(iter(errors), 0):  # one look, because the test clears it in another thread
            raise OSError(number, os.strerror(number))
        return launch(*given)

    monkeypatch.setattr(supervision, "launch", fail)
    monkeypatch.setattr(supervision, "_FIRST_PAUSE", 0.05)
    return errors


async def test_a_job_waits_until_the_machine_can_start_it_and_keeps_its_slot(settings, package, starts):
    starts += [errno.ENOMEM]
    async with cleaned(settings), running(settings) as service:
        jobs = [(await service.submit("ann", spec(max_workers=1), package)).id for _ in range(3)]

        async def told():
            return (await service.job("ann", jobs[0])).message

        message = await until_async(told, "why the job does not start")
        assert message.startswith("This machine cannot start it now (")
        assert "for 10 minutes at most" in message
        assert [await state_of(service, job) for job in jobs] == [JobState.LAUNCHING] * 2 + [JobState.PENDING]
        starts.clear()
        for job in jobs[:2]:
            await main_pid(service, job)
            assert (await service.job("ann", job)).message == ""
        assert not service._supervision._failing


async def test_a_job_that_waits_for_the_machine_is_stopped_at_once(settings, package, starts):
    starts += [errno.EAGAIN]
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(), package)).id
        await until_async(lambda: job in service._supervision._failing, "the first attempt")

        async def stopped():
            return (await service.stop_job("ann", job)).state is JobState.KILLED

        assert await stopped()
        await service.delete("ann", job)
        await until_async(lambda: job not in service._supervision._failing, "the attempt that finds no job")
        starts.clear()
        other = (await service.submit("ann", spec(), package)).id
        await main_pid(service, other)


async def test_the_next_server_starts_a_job_that_waits_for_the_machine(settings, package, starts):
    starts += [errno.EAGAIN]
    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", spec(), package)).id
            await until_async(lambda: job in service._supervision._failing, "the first attempt")
        starts.clear()
        async with running(settings) as service:
            await main_pid(service, job)


async def test_a_machine_that_never_recovers_ends_the_job_with_the_reason(settings, package, starts, monkeypatch):
    monkeypatch.setattr(supervision, "PATIENCE", 0.2)
    starts += [errno.ENOSPC]
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(), package)).id

        async def ended():
            return await state_of(service, job) is JobState.ERROR

        await until_async(ended, "the end of the job")
        assert "No space left on device" in (await service.job("ann", job)).message


async def test_an_error_of_the_job_itself_ends_it_at_once(settings, package, starts):
    starts += [errno.EACCES]
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(), package)).id

        async def ended():
            return await state_of(service, job) is JobState.ERROR

        await until_async(ended, "the end of the job")
        assert not service._supervision._failing
