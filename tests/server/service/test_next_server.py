"""A server ends and the next one goes on: jobs are adopted, and what was decided and not done is done."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import textwrap
import time

import pytest

from edt_sdk.schemas.errors import ServerUnreachable
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.channel.supervision import Supervision
from edt_server.ledger import recovery
from edt_server.supervisor.journal import read_journal
from edt_server.system.processes import is_alive, send_signal
from tests.packages import packed
from tests.server.by_hand import script
from tests.server.service.running import alive, cleaned, main_pid, running, spec, state_of
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


def elastic():
    return spec(framework=Framework.EDT, max_workers=2)


async def test_jobs_survive_the_server_and_the_next_one_adopts_them(settings, package):
    async with cleaned(settings):
        async with running(settings) as first:
            job = (await first.submit("ann", spec(), package)).id
            waiting = [(await first.submit("ann", spec(), package)).id for _ in range(2)][1]
            pid = await main_pid(first, job)
            before = [(event.seq, event.kind) for event in await first.events("ann", job)]
            holding = first._ledger.core.digest()
        assert alive(pid)
        async with running(settings) as second:
            assert second._ledger.core.digest() == holding
            assert second.busy
            assert [(event.seq, event.kind) for event in await second.events("ann", job)][: len(before)] == before
            assert await state_of(second, waiting) is JobState.PENDING
            await second.stop_job("ann", job)  # it listens to the new server

            async def killed():
                return await state_of(second, job) is JobState.KILLED

            await until_async(killed, "the adopted job's end")
            assert not alive(pid)

            async def started():
                return await state_of(second, waiting) in (JobState.LAUNCHING, JobState.RUNNING)

            await until_async(started, "the waiting job's start")


async def test_what_a_job_reported_to_nobody_is_taken_from_its_journal(settings, package):
    """The job ends while no server is there."""
    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", elastic(), package)).id
            pid = await main_pid(service, job)
            row = await service.mine("ann", job)
        paths = JobPaths(settings.data_dir, "ann", job)
        journal, said = paths.journal, paths.streams_dir / "driver.stdout"

        def another_driver():
            pids = [
                entry.report.pid for entry in read_journal(journal) if isinstance(entry.report, control.DriverStarted)
            ]
            return next((other for other in pids if other != pid), None)

        # A driver that was killed is run again; a second time in vain it is the end.
        os.kill(pid, signal.SIGKILL)
        # Only one that has begun its script counts as one that could start.
        await until_async(lambda: said.read_bytes().count(b"hello") == 2, "its second run's first words")
        os.kill(await until_async(another_driver, "the driver's second run"), signal.SIGKILL)
        await until_async(lambda: b"JobEnded" in journal.read_bytes(), "the job's last report")
        assert is_alive(row.supervisor)  # it waits for a server that hears it
        async with running(settings) as service:

            async def failed():
                return await state_of(service, job) is JobState.FAILED

            await until_async(failed, "the report")
            await until_async(lambda: not is_alive(row.supervisor), "the supervisor's end")


@pytest.mark.parametrize("supervised", [True, False])
async def test_the_last_progress_of_a_job_that_ended_without_a_server_is_kept(settings, tmp_path, supervised):
    gate = tmp_path / "gate"
    # Nothing is committed before the first server has ended.
    source = script(trouble=f"while not __import__('os').path.exists({str(gate)!r}): time.sleep(0.02)")
    package = tmp_path / "training.tar.gz"
    package.write_bytes(packed({"train.py": textwrap.dedent(source).encode()}))
    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", elastic(), package)).id
            await main_pid(service, job)
            row = await service.mine("ann", job)
            assert row.progress is None or row.progress.update == 0
        gate.touch()
        journal = JobPaths(settings.data_dir, "ann", job).journal
        await until_async(lambda: b"JobEnded" in journal.read_bytes(), "the job's last report")
        if not supervised:
            assert send_signal(row.supervisor, signal.SIGKILL)
            await until_async(lambda: not is_alive(row.supervisor), "the supervisor's death")
        async with running(settings) as service:

            async def finished():
                return await state_of(service, job) is JobState.FINISHED

            await until_async(finished, "the report of the end")
            await until_async(lambda: not is_alive(row.supervisor), "the supervisor's end")
            progress = (await service.job("ann", job)).progress
    assert (progress.update, progress.total_updates) == (30, 30)


async def test_a_supervisor_that_waits_for_the_next_server_is_not_refused(settings, package, caplog, monkeypatch):
    """Its key is admitted before the next server listens, however long that server reads its store."""
    read = recovery.stop_requests

    def late(*args):
        time.sleep(2.5)  # a supervisor tries to connect every second at least
        return read(*args)

    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", spec(), package)).id
            await main_pid(service, job)
        monkeypatch.setattr(recovery, "stop_requests", late)
        async with running(settings) as service:
            await until_async(lambda: job in service._supervision._greeted, "the supervisor's hello")
        assert "unknown key refused" not in caplog.text


async def test_a_server_that_died_before_it_started_the_job_starts_it(settings, package, monkeypatch):
    """Committed, but not acted on."""
    async with cleaned(settings):
        with monkeypatch.context() as crash:
            crash.setattr(Supervision, "begin", lambda self, job: None)
            async with running(settings) as service:
                job = (await service.submit("ann", spec(), package)).id
                assert (await service.mine("ann", job)).attempt == 0
        async with running(settings) as service:
            await main_pid(service, job)
            assert (await service.mine("ann", job)).attempt == 1


async def test_a_server_that_died_before_it_wrote_the_supervisor_down_finds_it(settings, package):
    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", spec(), package)).id
            pid = await main_pid(service, job)
            identity = (await service.mine("ann", job)).supervisor
            await service.change(lambda change: change.tx.update_job(job, supervisor=None))
        async with running(settings) as service:

            async def known():
                return (await service.mine("ann", job)).supervisor == identity

            await until_async(known, "the supervisor's hello")
            assert alive(pid)
            assert (await service.mine("ann", job)).attempt == 1


async def test_a_stop_the_last_server_could_not_deliver_is_delivered(settings, package, monkeypatch):
    async with cleaned(settings):
        with monkeypatch.context() as crash:
            crash.setattr(Supervision, "end", lambda self, job, why: None)
            async with running(settings) as service:
                job = (await service.submit("ann", spec(), package)).id
                await main_pid(service, job)
                await service.stop_job("ann", job)
        async with running(settings) as service:

            async def killed():
                return await state_of(service, job) is JobState.KILLED

            await until_async(killed, "the end of the job")


async def test_slots_that_are_gone_at_the_next_start_are_taken_from_jobs(settings, package):
    fewer = dataclasses.replace(settings, local_slots=1)
    async with cleaned(settings):
        async with running(settings) as service:
            jobs = [(await service.submit("ann", spec(), package)).id for _ in range(2)]
            for job in jobs:
                await main_pid(service, job)
        async with running(fewer) as service:
            assert len((await service.cluster("ann"))["slots"]) == 1

            async def settled():
                return service._ledger.core.settled()

            await until_async(settled, "the slot's release")
            held = sorted(view.slots for view in await service.jobs("ann"))
            assert held == [0, 1]


async def test_only_one_server_runs_the_jobs_of_a_folder(settings):
    async with running(settings):
        with pytest.raises(ServerUnreachable, match=str(os.getpid())):
            async with running(settings):
                pass
    async with running(settings):
        pass


async def test_a_start_that_fails_leaves_nothing_open(settings, monkeypatch):
    async def refuse(self):
        raise OSError("no address")

    with monkeypatch.context() as change:
        change.setattr(Supervision, "start", refuse)
        with pytest.raises(OSError, match="no address"):
            async with running(settings):
                pass
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("edt")] == []
    async with running(settings) as service:
        assert (await service.jobs("ann"), service.busy) == ([], False)
