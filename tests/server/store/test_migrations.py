"""The migrations: they lead to what the models say, and stores of every earlier revision open."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import shutil
import sqlite3
import stat
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from edt_sdk.schemas.job import SCHEDULED, JobProgress, JobSettings, JobSpec
from edt_sdk.schemas.search.spec import SearchSpec
from edt_server.store import Store, StoreError, schema
from edt_server.store.engine import make_engine
from edt_server.store.models import Base
from tests.server.store.trouble import no_room

ASSETS = Path(__file__).with_name("assets")
OLDEST, NEWEST = ASSETS / "revision_0001.db", sorted(ASSETS.glob("*.db"))[-1].stem.removeprefix("revision_")


@pytest.fixture
def store(tmp_path):
    store = Store.open(f"sqlite:///{tmp_path / 'edt.db'}")
    yield store
    store.close()


def test_migrated_tables_are_what_the_models_say(store):
    with store._engine.connect() as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_revisions_are_one_chain_of_numbers(store):
    with store._engine.connect() as connection:
        scripts = ScriptDirectory.from_config(schema.config(connection))
        chain = [script.revision for script in scripts.walk_revisions()][::-1]
        assert schema.revision(connection) == chain[-1]
    assert chain == [f"{number:04}" for number in range(1, len(chain) + 1)]


def test_every_revision_has_its_stored_database(store):
    with store._engine.connect() as connection:
        scripts = ScriptDirectory.from_config(schema.config(connection))
        assert {f"revision_{script.revision}.db" for script in scripts.walk_revisions()} == {
            path.name for path in ASSETS.glob("*.db")
        }


def check_content(store, asset):
    expected = _as_read_today(asset.with_suffix(".json"))
    jobs = {row.id: row for row in store.jobs()}
    assert sorted(jobs) == sorted(expected["jobs"])
    for job_id, fields in expected["jobs"].items():
        row = jobs[job_id]
        assert {name: _plain(getattr(row, name)) for name in fields} == fields
    assert [_plain(event) for event in store.events()] == expected["events"]
    snapshot, lease = store.snapshot(), store.lease("server")
    assert expected.get("lease") == _plain(lease)
    assert expected.get("snapshot") == (
        None if snapshot is None else {"seq": snapshot.seq, "version": snapshot.version, "data": _plain(snapshot.data)}
    )
    entries = [*store.entries("ana"), *store.entries("ben")]
    assert _plain(entries) == expected.get("catalogue", [])
    assert _plain(made_by().searches(store)) == expected["searches"]
    assert (store.labels("ana"), store.jobs(project="mnist")) == ([], []), "no row has a project yet"
    with store.write() as writer:
        writer.update_job("job-1", message="still writable")
        assert writer.append("x", job="job-1", data={}, time=0.0).seq == len(expected["events"]) + 1
    store.close()


@pytest.mark.parametrize("asset", sorted(ASSETS.glob("*.db")), ids=lambda path: path.stem)
def test_a_stored_database_opens_with_all_that_is_in_it(tmp_path, asset):
    shutil.copy(asset, tmp_path / "edt.db")
    store = Store.open(f"sqlite:///{tmp_path / 'edt.db'}")
    check_content(store, asset)


def made_by():
    """The script that made the newest asset."""
    spec = importlib.util.spec_from_file_location("make_database", ASSETS / "make_database.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_that_made_the_asset_still_runs(tmp_path):
    """Until the next revision it makes the present one; afterwards this test moves on with it."""
    made = made_by().make(tmp_path)
    assert json.loads(made.with_suffix(".json").read_text()) == _as_read_today(
        (ASSETS / made.name).with_suffix(".json")
    )


def old_postgres(url, asset):
    """A database of the revision of `asset`, with what is in it."""
    engine = make_engine(url)
    with engine.begin() as target:
        settings = schema.config(target)
        command.upgrade(settings, asset.stem.removeprefix("revision_"))
        tables = sa.MetaData()
        tables.reflect(target)
        with contextlib.closing(sqlite3.connect(asset)) as source:
            source.row_factory = sqlite3.Row
            for table in tables.sorted_tables:
                for row in source.execute(f"SELECT * FROM {table.name}"):
                    if table.name == schema.VERSION_TABLE:
                        continue
                    json_columns = {c.name for c in table.columns if isinstance(c.type, sa.JSON)}
                    values = {
                        name: json.loads(row[name]) if name in json_columns and row[name] is not None else row[name]
                        for name in row.keys()  # noqa: SIM118
                    }
                    target.execute(table.insert().values({k: v for k, v in values.items() if v is not None}))
        target.exec_driver_sql("SELECT setval('edt_events_seq_seq', (SELECT max(seq) FROM edt_events))")
    engine.dispose()


@pytest.mark.parametrize("asset", sorted(ASSETS.glob("*.db")), ids=lambda path: path.stem)
def test_a_postgresql_store_of_every_revision_opens_with_all_that_is_in_it(cluster, tmp_path, asset):
    url = cluster.new_database()
    old_postgres(url, asset)
    check_content(Store.open(url, backups=tmp_path), asset)
    dumps = [path for path in tmp_path.iterdir()]
    if asset.stem == f"revision_{NEWEST}" or shutil.which("pg_dump") is None:
        assert dumps == []
    else:
        assert [path.name for path in dumps] == [f"edt-before-{NEWEST}.dump"]
        assert dumps[0].read_bytes().startswith(b"PGDMP")
        assert stat.S_IMODE(dumps[0].stat().st_mode) == 0o600


def test_without_a_dump_the_log_says_how_to_make_one(cluster, caplog):
    url = cluster.new_database()
    old_postgres(url, OLDEST)
    with caplog.at_level(logging.WARNING):
        Store.open(url).close()
    assert "pg_dump --format=custom" in caplog.text


def test_migrated_postgresql_tables_are_what_the_models_say(cluster):
    store = Store.open(cluster.new_database())
    test_migrated_tables_are_what_the_models_say(store)
    store.close()


def test_before_a_migration_the_file_is_backed_up(tmp_path, caplog):
    path = tmp_path / "edt.db"
    shutil.copy(OLDEST, path)
    with caplog.at_level(logging.WARNING):
        Store.open(f"sqlite:///{path}").close()
    copy = tmp_path / f"edt.db.before-{NEWEST}"
    assert str(copy) in caplog.text
    assert sorted(tmp_path.iterdir()) == [path, copy]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(copy)) as kept, contextlib.closing(sqlite3.connect(OLDEST)) as old:
        assert list(kept.iterdump()) == list(old.iterdump())
    Store.open(f"sqlite:///{path}").close()
    assert sorted(tmp_path.iterdir()) == [path, copy], "nothing to migrate, nothing to back up"


def test_a_backup_holds_what_is_only_in_the_write_ahead_log(tmp_path):
    path = tmp_path / "edt.db"
    shutil.copy(OLDEST, path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("UPDATE edt_jobs SET message = 'only in the log'")
        other.commit()
        Store.open(f"sqlite:///{path}").close()
    with contextlib.closing(sqlite3.connect(tmp_path / f"edt.db.before-{NEWEST}")) as copy:
        assert set(copy.execute("SELECT message FROM edt_jobs")) == {("only in the log",)}


def test_a_failed_migration_leaves_the_file_as_it_was_and_names_the_backup(tmp_path):
    path = tmp_path / "edt.db"
    shutil.copy(OLDEST, path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE edt_leases (somebody TEXT)")
        other.commit()
        before = list(other.iterdump())
    copy = tmp_path / f"edt.db.before-{NEWEST}"
    for _ in range(3):
        with pytest.raises(StoreError, match=rf"0001 to {NEWEST}: .*already exists.*left as it was.*before-{NEWEST}"):
            Store.open(f"sqlite:///{path}")
        with contextlib.closing(sqlite3.connect(path)) as after:
            assert list(after.iterdump()) == before
        # Nothing changed between the attempts, so one copy is enough.
        assert sorted(tmp_path.glob("edt.db.*")) == [copy]
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO edt_leases VALUES ('a change')")
        other.commit()
    with pytest.raises(StoreError, match=rf"before-{NEWEST}\.2"):
        Store.open(f"sqlite:///{path}")
    with contextlib.closing(sqlite3.connect(copy)) as kept:
        assert list(kept.iterdump()) == before, "an earlier copy is never written over"


def test_a_failed_migration_of_postgresql_leaves_it_as_it_was(cluster):
    url = cluster.new_database()
    old_postgres(url, OLDEST)
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE edt_leases (somebody TEXT)")
    with pytest.raises(StoreError, match=rf"0001 to {NEWEST}: .*already exists.*left as it was"):
        Store.open(url)
    with engine.begin() as connection:
        assert schema.revision(connection) == "0001"
        assert not sa.inspect(connection).has_table("edt_core_snapshots")
    engine.dispose()


def test_without_room_for_a_backup_nothing_is_migrated(tmp_path):
    path = tmp_path / "edt.db"
    shutil.copy(OLDEST, path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        before = list(other.iterdump())
    with no_room(beyond=32768), pytest.raises(StoreError, match=r"backup.*could not be written.*Make room"):
        Store.open(f"sqlite:///{path}")
    with contextlib.closing(sqlite3.connect(path)) as after:
        assert list(after.iterdump()) == before
    assert [each.name for each in tmp_path.glob("edt.db?*") if not each.name.endswith(("-wal", "-shm"))] == []
    Store.open(f"sqlite:///{path}").close()


def _as_read_today(path):
    """What was stored; a specification or a progress of then has the fields that came later: defaults, and its log."""
    expected = json.loads(path.read_text())
    none = {name: [] for name in ("searches", "trials", "reports", "decisions")}
    expected["searches"] = expected.get("searches", none)
    for search in expected["searches"]["searches"]:
        search["spec"] = _plain(msgspec.convert(search["spec"], SearchSpec))
    for fields in expected["jobs"].values():
        fields["spec"] = _plain(msgspec.convert({"log": "batches"} | fields["spec"], JobSpec))
        if "settings" not in fields:
            fields["settings"] = {name: fields.pop(name) for name in SCHEDULED}
        fields["settings"] = _plain(msgspec.convert(fields["settings"], JobSettings))
        if fields["progress"] is not None:
            fields["progress"] = _plain(msgspec.convert(fields["progress"], JobProgress))
    return expected


def _plain(value):
    return json.loads(msgspec.json.encode(value))
