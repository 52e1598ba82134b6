"""What is special about SQLite files: settings, permissions, files that are damaged or from elsewhere."""

from __future__ import annotations

import logging
import multiprocessing
import sqlite3
import stat
import sys

import pytest
import sqlalchemy as sa

from edt_server.store import Store, StoreError, sqlite_url
from edt_server.store import engine as engine_module
from edt_server.store.engine import network_filesystem

url_of = sqlite_url  # short for what every test needs


def pragma(store: Store, name: str):
    with store._engine.connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


def test_settings(tmp_path):
    store = Store.open(url_of(tmp_path / "edt.db"))
    assert pragma(store, "journal_mode") == "wal"
    assert pragma(store, "synchronous") == 2  # FULL: committed before acted on
    assert pragma(store, "foreign_keys") == 1
    assert pragma(store, "busy_timeout") == engine_module.BUSY_TIMEOUT_MS
    store.close()


@pytest.mark.parametrize(
    ("which", "index"),
    [
        ({"job": "a", "limit": 10}, "ix_edt_events_job"),
        ({"job": "a", "kinds": ["x", "y"]}, "ix_edt_events_job"),
        ({"jobs": ["a", "b"], "limit": 10}, "ix_edt_events_job"),
        ({"kinds": ["x", "y"], "after": 10, "limit": 10}, "ix_edt_events_kind"),
        ({"after": 10}, "PRIMARY KEY"),
    ],
)
def test_no_view_reads_the_whole_list_of_events(tmp_path, which, index):
    store = Store.open(url_of(tmp_path / "edt.db"))
    with store.write() as writer:
        for n in range(50):
            writer.append("x", job="ab"[n % 2], data={}, time=0.0)
    asked = []
    sa.event.listen(store._engine, "before_cursor_execute", lambda *call: asked.append(call[2:4]))
    store.events(**which)
    sql, values = asked[-1]
    with store._engine.connect() as connection:
        plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert index in plan[0]
    assert plan[0].startswith("SEARCH")
    store.close()


def test_folder_and_file_are_made_for_the_owner_alone(tmp_path):
    path = tmp_path / "with space" / "per%cent?ü#@:x" / "edt.db"
    store = Store.open(url_of(path))
    with store.write() as writer:
        writer.append("x", job=None, data={}, time=0.0)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["edt.db"]


def test_numbers_of_events_are_never_used_again(tmp_path):
    store = Store.open(url_of(tmp_path / "edt.db"))
    with store.write() as writer:
        last = writer.append("x", job=None, data={}, time=0.0).seq
    store.close()
    with sqlite3.connect(tmp_path / "edt.db") as connection:
        connection.execute("DELETE FROM edt_events")
    connection.close()
    store = Store.open(url_of(tmp_path / "edt.db"))
    with store.write() as writer:
        assert writer.append("x", job=None, data={}, time=0.0).seq > last
    store.close()


@pytest.mark.parametrize("content", [b"this is no database\n" * 500, b"x", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "edt.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"left as it is.*backup"):
        Store.open(url_of(path))
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_database_is_found_when_it_is_opened(tmp_path):
    path = tmp_path / "edt.db"
    store = Store.open(url_of(path))
    with store.write() as writer:
        for _ in range(500):
            writer.append("x", job="a", data={"filler": "y" * 100}, time=0.0)
    store.close()
    whole = path.read_bytes()
    page = int.from_bytes(whole[16:18], "big")
    damaged = whole[: page * 10] + b"\xa5" * page * 3 + whole[page * 13 :]
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="damaged"):
        Store.open(url_of(path))
    assert path.read_bytes() == damaged
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="damaged"):
        Store.open(url_of(path))
    path.write_bytes(whole)
    store = Store.open(url_of(path))
    assert len(store.events()) == 500
    store.close()


def test_a_store_of_a_newer_release_is_refused(tmp_path):
    path = tmp_path / "edt.db"
    Store.open(url_of(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE edt_schema SET version_num = '9999'")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"revision 9999.*newer release.*Install that release"):
        Store.open(url_of(path))
    assert path.read_bytes() == before


def test_a_locked_store_says_so(tmp_path, monkeypatch):
    path = tmp_path / "edt.db"
    Store.open(url_of(path)).close()
    monkeypatch.setattr(engine_module, "BUSY_TIMEOUT_MS", 1)
    lock = sqlite3.connect(path)
    lock.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked"):
        Store.open(url_of(path))
    lock.close()


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be written.*data_dir"):
        Store.open(url_of(tmp_path / "file" / "edt.db"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "plain file"),
        ("sqlite:///:memory:", "plain file"),
        ("nonsense", "not the URL"),
        ("oracel://ana:geheim@db/edt", "not the URL"),
        ("mysql://ana:geheim@db/edt", "cannot be kept in mysql"),
        ("postgresql+psycopg2://ana:geheim@db/edt", r"begin with postgresql\+psycopg:"),
    ],
)
def test_urls_that_name_no_store(url, words):
    with pytest.raises(StoreError, match=words) as caught:
        Store.open(url)
    assert "geheim" not in str(caught.value)


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"psycopg.*pip install 'jupyter-edt\[postgresql\]'"):
        Store.open("postgresql://ana:geheim@db/edt")


def _open_and_append(url: str, start, results) -> None:
    start.wait(180)
    store = Store.open(url)
    with store.write() as writer:
        results.put(writer.append("x", job=None, data={}, time=0.0).seq)
    store.close()


def test_servers_that_start_at_once_on_a_new_file_do_not_collide(tmp_path):
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    url = url_of(tmp_path / "edt.db")
    processes = [context.Process(target=_open_and_append, args=(url, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join(180)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(results.get(timeout=5) for _ in processes) == [1, 2, 3]


class TestNetworkFileSystems:
    MOUNTS = (
        "20 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "21 20 0:40 / /home rw shared:5 - nfs4 server:/home rw\n"
        "22 21 8:2 / /home/ana/local\\040disk rw - xfs /dev/sdb rw\n"
        "23 20 0:41 / /homeopathy rw - ext4 /dev/sdc rw\n"
    )

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("/srv/edt.db", None),
            ("/home/ana/edt.db", "nfs4"),
            ("/home", "nfs4"),
            ("/homeopathy/edt.db", None),
            ("/home/ana/local disk/edt.db", None),
        ],
    )
    def test_the_deepest_mount_decides(self, tmp_path, path, expected):
        mounts = tmp_path / "mountinfo"
        mounts.write_text(self.MOUNTS)
        assert network_filesystem(path, mounts) == expected

    def test_where_the_system_does_not_tell_it_is_taken_for_local(self, tmp_path):
        assert network_filesystem("/home/ana", tmp_path / "missing") is None

    def test_there_the_store_goes_without_wal_and_says_so(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr(engine_module, "network_filesystem", lambda path: "nfs4")
        with caplog.at_level(logging.WARNING):
            store = Store.open(url_of(tmp_path / "edt.db"))
        assert "nfs4" in caplog.text
        assert "db_url" in caplog.text
        assert pragma(store, "journal_mode") == "delete"
        store.close()
