"""The service with real supervisors: what is decided is done, and survives the server and the supervisor."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import os
import signal
import tarfile
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edt_sdk.schemas import control
from edt_sdk.schemas.errors import Conflict, EdtError, NotAllowed, NotFound, ServerUnreachable, Unprocessable
from edt_sdk.schemas.job import JobPatch, JobSpec, JobState
from edt_sdk.schemas.paths import JobPaths
from edt_server import reports
from edt_server.ledger import Ledger
from edt_server.processes import is_alive, send_signal
from edt_server.recovery import MOST_IN_VAIN
from edt_server.runtime import ServerLock, private_dir, runtime_dir
from edt_server.service import Service
from edt_server.settings import Settings
from edt_server.supervision import Supervision
from edt_server.supervisor.journal import read_journal

SLEEPER = b"import time\nprint('hello', flush=True)\ntime.sleep(600)\n"
LIMIT = 30.0

pytestmark = pytest.mark.asyncio


async def until(condition, what):
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        value = condition()
        value = await value if asyncio.iscoroutine(value) else value
        if value:
            return value
        await asyncio.sleep(0.02)
    pytest.fail(f"waited {LIMIT:.0f} s in vain for {what}")


@pytest.fixture
def settings(tmp_path):
    data_dir = tmp_path / "data"
    place = runtime_dir(tmp_path / "run", data_dir)
    yield Settings(data_dir=data_dir, runtime_dir=place, local_slots=2, threads_per_slot=1, warm_workers=0)
    if place.exists():
        place.rmdir()  # empty: no job and no server left anything


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "package.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("train.py")
        member.size = len(SLEEPER)
        tar.addfile(member, io.BytesIO(SLEEPER))
    return path


@asynccontextmanager
async def running(settings, **options):
    """A service; its jobs end with it unless `keep` is called."""
    service = Service(settings, **options)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


@asynccontextmanager
async def cleaned(settings):
    """Whatever happens inside, no job is left running."""
    try:
        yield
    finally:
        async with running(settings) as service:
            await service.stop_all("ann")
            await until(lambda: not service.busy, "the end of the jobs")
            for view in await service.jobs("ann"):
                await service._supervision.gone(view.id, LIMIT)


def spec(**changes):
    return JobSpec(**{"name": "job", "main": "train.py", "max_workers": 2, **changes})


async def driver_pid(service, job):
    """The driver's process, once it runs the main script."""
    said = service.paths(await service.mine("ann", job)).streams_dir / "driver.stdout"
    await until(lambda: said.exists() and said.read_bytes(), "the driver's first words")
    pids = []

    async def told():
        pids.extend(event.data["pid"] for event in await service.events("ann", job) if event.kind == "driver_started")
        return pids

    await until(told, "the driver's start in the list of events")
    return pids[0]


async def state_of(service, job):
    return (await service.job("ann", job)).state


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_jobs_survive_the_server_and_the_next_one_adopts_them(settings, package):
    async with cleaned(settings):
        async with running(settings) as first:
            job = (await first.submit("ann", spec(), package)).id
            waiting = [(await first.submit("ann", spec(), package)).id for _ in range(2)][1]
            pid = await driver_pid(first, job)
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

            await until(killed, "the adopted job's end")
            assert not alive(pid)

            async def started():
                return await state_of(second, waiting) is JobState.LAUNCHING

            await until(started, "the waiting job's start")


async def test_what_a_job_reported_to_nobody_is_taken_from_its_journal(settings, package):
    """The job ends while no server is there."""
    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", spec(), package)).id
            pid = await driver_pid(service, job)
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
        await until(lambda: said.read_bytes().count(b"hello") == 2, "its second run's first words")
        os.kill(await until(another_driver, "the driver's second run"), signal.SIGKILL)
        await until(lambda: b"JobEnded" in journal.read_bytes(), "the job's last report")
        assert is_alive(row.supervisor)  # it waits for a server that hears it
        async with running(settings) as service:

            async def failed():
                return await state_of(service, job) is JobState.FAILED

            await until(failed, "the report")
            await until(lambda: not is_alive(row.supervisor), "the supervisor's end")


async def replaced(service, job, attempt):
    """The job once a supervisor of this attempt is known; fails when the job has ended instead."""

    async def known():
        row = await service.mine("ann", job)
        assert not row.state.final, row.message
        return row if row.attempt == attempt and row.supervisor is not None else None

    return await until(known, f"attempt {attempt}")


async def test_a_supervisor_that_dies_is_replaced_and_its_job_keeps_its_slots(settings, package):
    async with cleaned(settings), running(settings) as service:
        job = (await service.submit("ann", spec(), package)).id
        waiting = [(await service.submit("ann", spec(), package)).id for _ in range(2)][1]
        pid = await driver_pid(service, job)
        row = await service.mine("ann", job)
        held = service._ledger.core.holding(job)
        assert send_signal(row.supervisor, signal.SIGKILL)
        again = await replaced(service, job, row.attempt + 1)
        assert again.supervisor != row.supervisor
        assert service._ledger.core.holding(job) == held
        assert await state_of(service, waiting) is JobState.PENDING
        await until(lambda: not alive(pid), "the first driver's end")
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

        await until(failed, "the job's failure")
        message = (await service.job("ann", job)).message
        assert f"supervisor ended unexpectedly, {MOST_IN_VAIN} times in a row" in message

        async def started():
            return await state_of(service, waiting) is JobState.LAUNCHING

        await until(started, "the waiting job's start")


async def test_a_supervisor_that_died_while_no_server_was_there_is_replaced_by_the_next(settings, package):
    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", spec(), package)).id
            await driver_pid(service, job)
            row = await service.mine("ann", job)
        send_signal(row.supervisor, signal.SIGKILL)
        await until(lambda: not is_alive(row.supervisor), "its death")
        async with running(settings) as service:
            again = await replaced(service, job, row.attempt + 1)
            await until(lambda: is_alive(again.supervisor), "the next one")
            assert service._ledger.core.free() == (1,)


async def test_a_server_that_died_before_it_started_the_job_starts_it(settings, package, monkeypatch):
    """Committed, but not acted on."""
    async with cleaned(settings):
        with monkeypatch.context() as crash:
            crash.setattr(Supervision, "begin", lambda self, job: None)
            async with running(settings) as service:
                job = (await service.submit("ann", spec(), package)).id
                assert (await service.mine("ann", job)).attempt == 0
        async with running(settings) as service:
            await driver_pid(service, job)
            assert (await service.mine("ann", job)).attempt == 1


async def test_a_server_that_died_before_it_wrote_the_supervisor_down_finds_it(settings, package):
    async with cleaned(settings):
        async with running(settings) as service:
            job = (await service.submit("ann", spec(), package)).id
            pid = await driver_pid(service, job)
            identity = (await service.mine("ann", job)).supervisor
            await service.change(lambda change: change.tx.update_job(job, supervisor=None))
        async with running(settings) as service:

            async def known():
                return (await service.mine("ann", job)).supervisor == identity

            await until(known, "the supervisor's hello")
            assert alive(pid)
            assert (await service.mine("ann", job)).attempt == 1


async def test_a_stop_the_last_server_could_not_deliver_is_delivered(settings, package, monkeypatch):
    async with cleaned(settings):
        with monkeypatch.context() as crash:
            crash.setattr(Supervision, "end", lambda self, job, why: None)
            async with running(settings) as service:
                job = (await service.submit("ann", spec(), package)).id
                await driver_pid(service, job)
                await service.stop_job("ann", job)
        async with running(settings) as service:

            async def killed():
                return await state_of(service, job) is JobState.KILLED

            await until(killed, "the end of the job")


async def test_slots_that_are_gone_at_the_next_start_are_taken_from_jobs(settings, package):
    fewer = dataclasses.replace(settings, local_slots=1)
    async with cleaned(settings):
        async with running(settings) as service:
            jobs = [(await service.submit("ann", spec(), package)).id for _ in range(2)]
            for job in jobs:
                await driver_pid(service, job)
        async with running(fewer) as service:
            assert len((await service.cluster("ann"))["slots"]) == 1

            async def settled():
                return service._ledger.core.settled()

            await until(settled, "the slot's release")
            held = sorted(view.slots for view in await service.jobs("ann"))
            assert held == [0, 1]


async def test_only_one_server_runs_the_jobs_of_a_folder(settings):
    async with running(settings):
        with pytest.raises(ServerUnreachable, match=str(os.getpid())):
            await Service(settings).start()
    async with running(settings):
        pass


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
            await service.update("bob", job, JobPatch(priority=1))
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


class TestReports:
    """Reports against a ledger alone: no processes."""

    @pytest.fixture
    def ledger(self, settings, package):
        from edt_server import submission
        from edt_server.core import SlotsChanged

        settings.data_dir.mkdir(exist_ok=True)
        ledger = Ledger.open(settings.store_url)
        slots = tuple(control.Slot(id=k, host="h") for k in range(3))
        ledger.change(lambda change: change.apply(SlotsChanged(slots)))
        accepted = submission.place(settings, "ann", spec(max_workers=3), package, "/python", 1)
        _, outcome = ledger.change(accepted.enter)
        assert outcome.launches == (accepted.job,)
        self.job = accepted.job
        yield ledger
        ledger.close()

    def report(self, ledger, number, report):
        numbered = control.Numbered(number=number, time=time.time(), report=report)
        return ledger.change(lambda change: reports.take(change, self.job, numbered))

    async def test_a_job_grows_when_it_trains_and_gives_back_when_it_does_not(self, ledger):
        taken, outcome = self.report(ledger, 1, control.TrainingStarted(training=0, shards=2, epochs=1))
        assert taken
        assert [slot.id for slot in outcome.allocations[self.job].slots] == [0, 1]  # V caps the maximum of 3
        assert ledger.row(self.job).shards == 2
        generation = control.GenerationFormed(training=0, number=1, workers=(0,), slots=(0,), pids=(1,), update=0)
        _, outcome = self.report(ledger, 2, generation)
        assert [(row.state, before) for row, before in outcome.states] == [(JobState.RUNNING, JobState.LAUNCHING)]
        _, outcome = self.report(ledger, 3, control.TrainingEnded(training=0, updates=7))
        assert outcome.allocations[self.job].slots == ()
        _, outcome = self.report(ledger, 4, control.SlotReleased(slot=0, worker=0, exit_code=0))
        assert ledger.core.leaving(self.job) == (1,)

    async def test_versions_of_allocations_grow(self, ledger):
        _, first = self.report(ledger, 1, control.TrainingStarted(training=0, shards=3, epochs=1))
        _, second = self.report(ledger, 2, control.TrainingEnded(training=0, updates=7))
        assert first.allocations[self.job].version < second.allocations[self.job].version

    async def test_a_report_counts_once_and_none_may_be_missing(self, ledger):
        self.report(ledger, 1, control.DriverStarted(pid=1))
        count = len(ledger.store.events())
        assert self.report(ledger, 1, control.DriverStarted(pid=1))[0] is False
        assert len(ledger.store.events()) == count
        with pytest.raises(Conflict):
            self.report(ledger, 3, control.DriverStarted(pid=1))
        assert ledger.row(self.job).last_report == 1

    async def test_a_slot_released_twice_is_free_once(self, ledger):
        for number in (1, 2):
            self.report(ledger, number, control.SlotReleased(slot=0, worker=0, exit_code=1))
        self.report(ledger, 3, control.SlotReleased(slot=2, worker=None, exit_code=None))
        ledger.core.check()
        assert ledger.row(self.job).last_report == 3

    async def test_the_end_frees_everything_and_is_final(self, ledger):
        self.report(ledger, 1, control.TrainingStarted(training=0, shards=3, epochs=1))
        _, outcome = self.report(ledger, 2, control.JobEnded(state=JobState.FINISHED, message=""))
        assert (ledger.row(self.job).state, ledger.core.jobs, ledger.core.free()) == (JobState.FINISHED, (), (0, 1, 2))
        assert outcome.allocations == {}
        self.report(ledger, 3, control.TrainingStarted(training=1, shards=3, epochs=1))
        assert (ledger.row(self.job).state, ledger.row(self.job).last_report) == (JobState.FINISHED, 3)
        assert Ledger(ledger.store, ledger._plan).core.digest() == ledger.core.digest()


async def test_folders_of_somebody_else_are_not_used(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(EdtError):
        private_dir(tmp_path / "link")
    (tmp_path / "open").mkdir(mode=0o777)
    assert private_dir(tmp_path / "open").stat().st_mode & 0o777 == 0o700


async def test_a_runtime_folder_is_short_enough_for_a_socket(tmp_path):
    deep = tmp_path / ("x" * 120)
    place = runtime_dir(deep, tmp_path / "data")
    try:
        assert not place.is_relative_to(deep)
        assert len(os.fsencode(place)) < 60
        assert place != runtime_dir(deep, tmp_path / "other")
    finally:
        place.rmdir()
        runtime_dir(deep, tmp_path / "other").rmdir()


async def test_also_where_the_temporary_folder_is_as_deep(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    place = runtime_dir(deep, tmp_path / "data")
    assert place.parent == Path("/tmp")
    place.rmdir()


async def test_the_lock_is_free_again_when_its_holder_lets_go(tmp_path):
    first, second = ServerLock(tmp_path / "lock"), ServerLock(tmp_path / "lock")
    (tmp_path / "keeps the folder").touch()
    with first, pytest.raises(ServerUnreachable):
        second.acquire()
    with second:
        assert (tmp_path / "lock").read_text() == str(os.getpid())
    assert not (tmp_path / "lock").exists()


async def test_unknown_queue_names_the_known(settings, package):
    async with running(settings) as service:
        with pytest.raises(Unprocessable, match="default"):
            await service.submit("ann", spec(instance_group="x"), package)
        assert await service.jobs("ann") == []
