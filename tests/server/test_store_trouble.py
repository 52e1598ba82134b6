"""The store goes away and comes back: no job is lost, nothing runs twice, and the service goes on by itself."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import sqlite3
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import pytest

from edt_sdk.schemas.job import JobSpec, JobState
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.core.events import SlotsChanged
from edt_server.jobs.submission import Submission
from edt_server.ledger.ledger import Ledger
from edt_server.service import open_service
from edt_server.settings import Settings
from edt_server.store import Store, StoreUnavailable
from edt_server.store import engine as engine_module
from edt_server.system.processes import send_signal
from edt_server.system.runtime import runtime_dir
from tests.packages import SLEEPER, packed
from tests.server.store.cluster import Cluster, Missing
from tests.server.store.trouble import no_room
from tests.waiting import LIMIT, until_async


class LosesAnswers(Store):
    """A store whose database commits, and whose connection breaks before it says so."""

    lose = False

    @contextmanager
    def write(self):
        with super().write() as writer:
            yield writer
        if self.lose:
            raise StoreUnavailable("The connection broke.")


def submit(ledger, folder, job):
    spec = JobSpec(name=job, main="train.py", max_workers=2)
    entered = Submission(job, "ann", spec, "/python", 1, JobPaths(folder, "ann", job)).enter
    return ledger.change(entered)[1]


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(LosesAnswers.open(f"sqlite:///{tmp_path / 'edt.db'}"))
    made.change(lambda change: change.apply(SlotsChanged(tuple(control.Slot(id=k, host="h") for k in range(3)))))
    yield made
    made.store.close()


def test_what_was_committed_without_an_answer_is_acted_on_with_the_next_change(ledger, tmp_path):
    ledger.store.lose = True
    with pytest.raises(StoreUnavailable):
        submit(ledger, tmp_path, "a")
    ledger.store.lose = False
    assert ledger.row("a").state is JobState.LAUNCHING
    _, outcome = ledger.change(lambda change: change.tx.probe())
    assert outcome.launches == ("a",)
    assert [row.id for row, _ in outcome.states] == ["a"]
    assert len(outcome.allocations["a"].slots) == 1
    _, outcome = ledger.change(lambda change: change.tx.probe())
    assert (outcome.launches, outcome.states) == ((), ()), "once"


def test_what_was_not_committed_is_forgotten(ledger, tmp_path):
    digest = ledger.core.digest()
    with no_room(beyond=2048), pytest.raises(StoreUnavailable):
        submit(ledger, tmp_path, "a")
    assert ledger.core.digest() == digest
    assert ledger.store.jobs() == []
    _, outcome = ledger.change(lambda change: change.tx.probe())
    assert outcome.launches == ()
    assert submit(ledger, tmp_path, "a").launches == ("a",)


def test_a_core_that_cannot_be_rebuilt_now_is_rebuilt_later(ledger, tmp_path, monkeypatch):
    digest = ledger.core.digest()

    def decide_and_fail(change):
        change.apply(SlotsChanged(()))
        # Nothing can be read either.
        monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 1)
        ledger.store._engine.dispose()
        (tmp_path / "edt.db").chmod(0o600)
        (tmp_path / "edt.db").rename(tmp_path / "away.db")
        (tmp_path / "edt.db").mkdir()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger.change(decide_and_fail)
    with pytest.raises(StoreUnavailable, match="unable to open"):
        ledger.change(lambda change: None)
    (tmp_path / "edt.db").rmdir()
    (tmp_path / "away.db").rename(tmp_path / "edt.db")
    ledger.change(lambda change: None)
    assert ledger.core.digest() == digest


# --- a service with real supervisors ----------------------------------------------------------------------------------


until = functools.partial(until_async, ignoring=(StoreUnavailable,))


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 20)
    data_dir = tmp_path / "data"
    place = runtime_dir(tmp_path / "run", data_dir)
    return Settings(data_dir=data_dir, runtime_dir=place, local_slots=2, threads_per_slot=1, warm_workers=0)


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "package.tar.gz"
    path.write_bytes(packed({"train.py": SLEEPER}))
    return path


@asynccontextmanager
async def running(settings):
    """A service; its jobs end with it."""
    async with open_service(settings) as service:
        try:
            yield service
        finally:
            with contextlib.suppress(StoreUnavailable):
                await service.stop_all("ann")

                await until(lambda: not service.busy, "the end of the jobs")
                for view in await service.jobs("ann"):
                    await service._supervision.gone(view.id, LIMIT)


async def started(service, package):
    job = (await service.submit("ann", JobSpec(name="job", main="train.py", max_workers=1), package)).id
    said = service.paths(await service.mine("ann", job)).streams_dir / "driver.stdout"

    await until(lambda: said.exists() and said.read_bytes(), "the driver's first words")
    return job


async def supervised(service, job):
    async def has_one():
        row = await service.mine("ann", job)
        return row if row.supervisor is not None else None

    return await until(has_one, "its supervisor")


async def loses_its_supervisor_meanwhile(service, package, job, away, back):
    """The store goes away; a supervisor is killed; the store comes back, and another supervisor goes on."""
    before = await supervised(service, job)
    await away()
    with pytest.raises(StoreUnavailable):
        await service.submit("ann", JobSpec(name="refused", main="train.py", max_workers=1), package)
    assert service.trouble is not None
    send_signal(before.supervisor, signal.SIGKILL)
    # Long enough for the service to have tried, and for its watcher to have died, if it could.
    await asyncio.sleep(2.5)
    await back()

    async def goes_on():
        row = await service.mine("ann", job)
        return row if row.attempt == before.attempt + 1 and row.supervisor is not None else None

    await until(goes_on, "the next supervisor")

    await until(lambda: service.trouble is None, "the end of the trouble")
    assert [view.id for view in await service.jobs("ann")] == [job], "what was refused is not there"

    results = service.settings.data_dir / "results/ann/batchworkdir"
    await until(lambda: [path.name for path in results.iterdir()] == [job], "the removal of what was refused")


@pytest.mark.asyncio
async def test_a_store_that_was_locked_for_a_while(settings, package, caplog):
    async with running(settings) as service:
        job = await started(service, package)
        other = sqlite3.connect(settings.data_dir / "edt.sqlite", isolation_level=None)

        async def away():
            other.execute("BEGIN IMMEDIATE")

        async def back():
            other.execute("ROLLBACK")
            other.close()

        await loses_its_supervisor_meanwhile(service, package, job, away, back)
    assert caplog.text.count("database is locked") == 1, "said once, not every second"


@pytest.mark.asyncio
async def test_a_submission_that_was_committed_without_an_answer_is_a_job(settings, package):
    async with running(settings) as service:
        service._ledger.store.__class__ = LosesAnswers
        service._ledger.store.lose = True
        with pytest.raises(StoreUnavailable):
            await service.submit("ann", JobSpec(name="job", main="train.py", max_workers=1), package)
        service._ledger.store.lose = False
        (view,) = await service.jobs("ann")
        said = service.paths(await service.mine("ann", view.id)).streams_dir / "driver.stdout"
        await until(lambda: said.exists() and said.read_bytes(), "the driver's first words")


@pytest.mark.asyncio
async def test_a_postgresql_that_was_down_for_a_while(settings, package):
    pytest.importorskip("psycopg")
    try:
        cluster = await asyncio.to_thread(Cluster)
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        async with running(replace(settings, db_url=cluster.new_database())) as service:
            job = await started(service, package)

            async def away():
                await asyncio.to_thread(cluster.end, signal.SIGQUIT)

            async def back():
                await asyncio.to_thread(cluster.start)

            await loses_its_supervisor_meanwhile(service, package, job, away, back)
    finally:
        cluster.stop()
