"""What clients of a Jupyter Server are told while its job store is in trouble, and that it passes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sqlite3

import pytest

from edt_server.store import engine as engine_module
from tests.server.store.cluster import Cluster, Missing
from tests.waiting import until_async


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 20)


async def test_while_the_store_is_locked_everybody_is_told_so(impatient, call, submit, edt, tmp_path):
    accepted = await submit()
    assert accepted.status == 201
    with contextlib.closing(sqlite3.connect(tmp_path / "edt" / "edt.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = await submit()
        assert refused.status == 503
        assert "database is locked" in refused.json["message"]
        assert "end that program" in refused.json["hint"]
        # Without the store nobody can know for long that he still leads.
        await until_async(lambda: not edt.leads, "the end of the lease")
        answer = await call("GET", "/jobs")
        assert (answer.status, "database is locked" in answer.json["message"]) == (503, True)
        other.execute("ROLLBACK")

    async def answered():
        return (await call("GET", "/jobs")).status == 200

    await until_async(answered, "the end of the trouble")
    jobs = (await call("GET", "/jobs")).json["jobs"]
    assert [job["id"] for job in jobs] == [accepted.json["id"]]


class TestAStoreThatIsNotThereYet:
    @pytest.fixture
    def cluster(self):
        pytest.importorskip("psycopg")
        try:
            cluster = Cluster()
        except Missing as missing:
            pytest.skip(str(missing))
        yield cluster
        cluster.stop()

    @pytest.fixture
    def edt_config(self, cluster):
        url = cluster.new_database()
        cluster.end(signal.SIGINT)
        return {"db_url": url}

    async def test_the_server_begins_when_it_is(self, cluster, call, submit):
        refused = await submit()
        assert refused.status == 503
        assert "Check that the database runs" in refused.json["hint"]
        await asyncio.to_thread(cluster.start)

        async def accepted():
            return (await submit()).status == 201

        await until_async(accepted, "a job accepted")


class TestAnOldStore:
    async def test_it_is_migrated_with_a_backup(self, jp_serverapp, tmp_path, request):
        (tmp_path / "edt").mkdir(mode=0o700)
        old = request.config.rootpath / "tests/server/store/assets/revision_0001.db"
        shutil.copy(old, tmp_path / "edt" / "edt.sqlite")
        with contextlib.closing(sqlite3.connect(tmp_path / "edt" / "edt.sqlite")) as connection:
            # Its jobs are of a host that is not this one: they have ended here.
            connection.execute("UPDATE edt_jobs SET state = 'FINISHED', supervisor = NULL, public_key = ''")
            connection.execute("DELETE FROM edt_events")
            connection.commit()
        await jp_serverapp.extension_manager.start_all_extensions()
        (app,) = jp_serverapp.extension_manager.extension_apps["edt_jupyter"]
        views = await app.service.jobs("", everybody=True)
        assert sorted(view.id for view in views) == ["job-1", "job-2"]
        assert len(list((tmp_path / "edt").glob("edt.sqlite.before-*"))) == 1
        await app.stop_extension()
