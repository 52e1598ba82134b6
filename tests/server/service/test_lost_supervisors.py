"""A supervisor dies: its job is given another one and keeps its slots, until that has been in vain too often."""

from __future__ import annotations

import signal

import pytest

from edt_sdk.schemas.job import JobState
from edt_server.ledger.recovery import MOST_IN_VAIN
from edt_server.system.processes import is_alive, send_signal
from tests.server.service.running import alive, cleaned, main_pid, replaced, running, spec, state_of
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


async def test_a_supervisor_that_dies_is_replaced_and_its_job_keeps_its_slots(settings, package):
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(), package)).id
        waiting = [(await service.submit("ann", spec(), package)).id for _ in range(2)][1]
        pid = await main_pid(service, job)
        row = await service.mine("ann", job)
        held = service._ledger.core.holding(job)
        assert send_signal(row.supervisor, signal.SIGKILL)
        again = await replaced(service, job, row.attempt + 1)
        assert again.supervisor != row.supervisor
        assert service._ledger.core.holding(job) == held
        assert await state_of(service, waiting) is JobState.PENDING
        await until_async(lambda: not alive(pid), "the first driver's end")
        kinds = [event.kind for event in await service.events("ann", job)]
        assert "supervisor_lost" in kinds


async def test_supervisors_that_die_in_vain_fail_their_job_and_free_its_slots(settings, package):
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(), package)).id
        waiting = [(await service.submit("ann", spec(), package)).id for _ in range(2)][1]
        for attempt in range(1, MOST_IN_VAIN + 1):
            send_signal((await replaced(service, job, attempt)).supervisor, signal.SIGKILL)

        async def failed():
            return await state_of(service, job) is JobState.FAILED

        await until_async(failed, "the job's failure")
        message = (await service.job("ann", job)).message
        assert f"supervisor ended unexpectedly, {MOST_IN_VAIN} times in a row" in message

        async def started():
            return await state_of(service, waiting) in (JobState.LAUNCHING, JobState.RUNNING)

        await until_async(started, "the waiting job's start")


async def test_a_supervisor_that_died_while_no_server_was_there_is_replaced_by_the_next(settings, package):
    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", spec(), package)).id
            await main_pid(service, job)
            row = await service.mine("ann", job)
        send_signal(row.supervisor, signal.SIGKILL)
        await until_async(lambda: not is_alive(row.supervisor), "its death")
        async with running(settings) as service:
            again = await replaced(service, job, row.attempt + 1)
            await until_async(lambda: is_alive(again.supervisor), "the next one")
            assert service._ledger.core.free() == (1,)
