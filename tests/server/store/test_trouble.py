"""Trouble a database meets while the store is open: said in words, nothing half written, and over when it is over."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import threading

import pytest
import sqlalchemy as sa

from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.store import Store, StoreError, StoreUnavailable
from edt_server.store import engine as engine_module
from edt_server.store import postgres as postgres_module
from tests.server.store.trouble import fill, no_room, small_disk

HOLDER = ProcessIdentity(host="h", boot_id="b", pid_namespace="1", pid=1, start_ticks=1)


def append(store: Store, size: int = 10, job: str = "a") -> int:
    with store.write() as writer:
        return writer.append("x", job=job, data={"filler": "y" * size}, time=0.0).seq


@pytest.fixture
def store(tmp_path):
    store = Store.open(f"sqlite:///{tmp_path / 'edt.db'}")
    yield store
    store.close()


def test_a_full_disk(tmp_path):
    with small_disk(tmp_path, 400_000) as mounted:
        if not mounted:
            pytest.skip("a small disk of its own can only be mounted as root, with the right to (CAP_SYS_ADMIN)")
        store = Store.open(f"sqlite:///{tmp_path / 'edt.db'}")
        before = append(store)
        ballast = tmp_path / "ballast"
        fill(ballast)
        with pytest.raises(StoreUnavailable, match=r"edt\.db cannot be used now: .*(full|I/O).*space|quota"):
            append(store, 300_000)
        assert [event.seq for event in store.events()] == [before], "what was there can be read"
        ballast.unlink()
        assert append(store) > before
        store.close()


def test_on_a_full_disk_small_things_are_written_all_the_same(tmp_path):
    with small_disk(tmp_path, 32 << 20) as mounted:
        if not mounted:
            pytest.skip("a small disk of its own can only be mounted as root, with the right to (CAP_SYS_ADMIN)")
        store = Store.open(f"sqlite:///{tmp_path / 'edt.db'}")
        append(store)
        fill(tmp_path / "ballast")
        for number in range(1500):
            # Several rounds of the log (1000 pages are one), and half of the free pages.
            if number % 4:
                with store.write() as writer:
                    writer.take_lease("leader", HOLDER, now=float(number), expires=number + 0.5, url="")
            else:
                append(store, 1000)
        with contextlib.suppress(OSError), (tmp_path / "more").open("wb", buffering=0) as file:
            assert not file.write(b"z" * 4096), "the room is the store's alone"
        store.close()


def test_no_room_to_grow(store):
    append(store)
    with no_room(beyond=64_000), pytest.raises(StoreUnavailable, match=r"cannot be used now.*by itself"):
        append(store, 200_000)
    assert len(store.events()) == 1
    append(store, 200_000)
    assert len(store.events()) == 2


def test_locked_by_another_program(store, tmp_path, monkeypatch):
    store.close()
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 1)
    store = Store.open(f"sqlite:///{tmp_path / 'edt.db'}")
    append(store)
    with contextlib.closing(sqlite3.connect(tmp_path / "edt.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"database is locked.*end that program"):
            append(store)
        assert len(store.events()) == 1, "readers do not wait for writers"
        other.execute("ROLLBACK")
    append(store)
    assert len(store.events()) == 2
    store.close()


def test_a_file_that_is_damaged_while_it_is_open(store, tmp_path):
    for _ in range(200):
        append(store, 500)
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close()
    store._engine.dispose()  # nothing of it is cached
    with (tmp_path / "edt.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 4096 * 20)
    with pytest.raises(StoreError, match=r"damaged.*Stop the server and put a backup in its place") as caught:
        store.events()
    assert not isinstance(caught.value, StoreUnavailable)
    with pytest.raises(StoreError, match="damaged"):
        Store.open(f"sqlite:///{tmp_path / 'edt.db'}")


def test_a_mistake_of_ours_is_not_called_trouble(store):
    with pytest.raises(sa.exc.OperationalError, match="no such table"), store.write() as writer:
        writer._session.execute(sa.text("SELECT * FROM nowhere"))


def test_a_probe_finds_out_whether_anything_can_be_written(store):
    with store.write() as writer:
        writer.probe()
    # Smaller than one page: whatever is written ends in an error.
    with no_room(beyond=2048), pytest.raises(StoreUnavailable), store.write() as writer:
        writer.probe()


class TestPostgreSQL:
    def test_it_is_not_there_yet(self, tmp_path):
        url = f"postgresql+psycopg://edt:geheim@/edt?host={tmp_path}"
        pytest.importorskip("psycopg")
        with pytest.raises(StoreUnavailable, match=r"cannot be used now.*Check that the database runs") as caught:
            Store.open(url)
        assert "geheim" not in str(caught.value)

    def test_a_database_that_was_not_made(self, cluster):
        url = cluster.new_database().replace("/edt", "/nowhere", 1)
        with pytest.raises(StoreUnavailable, match=r"does not exist.*database was created"):
            Store.open(url)

    def test_an_encoding_that_cannot_hold_every_name(self, cluster):
        url = cluster.new_database("--encoding=SQL_ASCII", "--locale=C", "--template=template0")
        with pytest.raises(StoreError, match=r"SQL_ASCII.*createdb --encoding=UTF8"):
            Store.open(url)

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
    def test_a_restart_within_a_transaction(self, cluster, how):
        store = Store.open(cluster.new_database())
        before = append(store)

        def interrupted() -> None:
            with store.write() as writer:
                writer.append("x", job="lost", data={}, time=0.0)
                cluster.end(how)
                writer.append("x", job="lost", data={}, time=0.0)

        try:
            with pytest.raises(StoreUnavailable, match=r"cannot be used now.*goes on by itself"):
                interrupted()
            with pytest.raises(StoreUnavailable):
                append(store)
            with pytest.raises(StoreUnavailable):
                store.events()
        finally:
            cluster.start()
        assert [event.seq for event in store.events()] == [before], "all of it or nothing"
        assert append(store) > before
        store.close()

    def test_a_restart_between_two_transactions_is_not_noticed(self, cluster):
        store = Store.open(cluster.new_database())
        append(store)
        cluster.end()
        cluster.start()
        append(store)
        assert len(store.events()) == 2
        store.close()

    def test_another_server_that_writes_and_writes(self, cluster, monkeypatch):
        monkeypatch.setattr(postgres_module, "LOCK_TIMEOUT_MS", 50)
        url = cluster.new_database()
        store, other = Store.open(url), Store.open(url)
        release, holding = threading.Event(), threading.Event()

        def hold() -> None:
            with other.write() as writer:
                writer.append("x", job=None, data={}, time=0.0)
                holding.set()
                release.wait(180)

        thread = threading.Thread(target=hold)
        thread.start()
        assert holding.wait(180)
        with pytest.raises(StoreUnavailable, match=r"Another server has been writing for long"):
            append(store)
        assert store.events() == []
        release.set()
        thread.join(180)
        append(store)
        assert len(store.events()) == 2
        store.close()
        other.close()

    def test_a_database_made_read_only(self, cluster):
        url = cluster.new_database()
        Store.open(url).close()
        engine = engine_module.make_engine(url)
        with engine.connect() as connection:
            name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on").close()
            connection.commit()
        engine.dispose()
        store = Store.open(url)
        with pytest.raises(StoreUnavailable, match=r"read-only.*primary"):
            append(store)
        store.close()
