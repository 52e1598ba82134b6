"""Jobs of a portable resource group start with the variables for that, and those that began otherwise are marked."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from edt_sdk.schemas.errors import Conflict, Unprocessable
from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.plan import PORTABLE, ResourceGroup
from tests.server.service.running import cleaned, main_pid, running, spec, state_of
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


async def chosen(service, job):
    """The instructions that the job's process was started with."""
    process = Path(f"/proc/{await main_pid(service, job)}/environ")
    variables = (await asyncio.to_thread(process.read_bytes)).split(b"\0")
    found = dict(os.fsdecode(each).partition("=")[::2] for each in variables if each)
    return {name: found[name] for name in PORTABLE if name in found}


async def test_what_a_job_of_a_portable_group_is_started_with(settings, package, monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")  # of the server or of an agent
    async with cleaned(settings), running(settings) as service:
        exact = (await service.submit("ann", spec(), package)).id
        assert await chosen(service, exact) == {"ATEN_CPU_CAPABILITY": "avx2"}
        portable = {"portable": True}
        with pytest.raises(Conflict, match=exact):
            await service.sharing.change("ann", ResourceGroup, "default", portable)
        await service.stop_job("ann", exact)

        async def stopped():
            return await state_of(service, exact) is JobState.KILLED

        await until_async(stopped, "the end of its processes")
        await service.sharing.change("ann", ResourceGroup, "default", portable)
        with pytest.raises(Unprocessable, match="env sets MKL_CBWR"):
            await service.submit("ann", spec(env={"MKL_CBWR": "AVX2"}), package)
        begun = (await service.submit("ann", spec(), package)).id
        assert await chosen(service, begun) == PORTABLE
        assert (await service.mine("ann", begun)).spec.env == {}, "as it was submitted"
        await service.resume("ann", exact)

        async def marked():
            progress = (await service.job("ann", exact)).progress
            return progress is not None and "rounds otherwise" in progress.inexact

        await until_async(marked, "the mark of the job that began otherwise")
