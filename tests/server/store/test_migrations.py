"""The migrations: they lead to what the models say, and stores of every earlier revision open."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import msgspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from edt_sdk.schemas.job import JobSpec
from edt_server.store import Store, schema
from edt_server.store.models import Base

ASSETS = Path(__file__).with_name("assets")


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


@pytest.mark.parametrize("asset", sorted(ASSETS.glob("*.db")), ids=lambda path: path.stem)
def test_a_stored_database_opens_with_all_that_is_in_it(tmp_path, asset):
    shutil.copy(asset, tmp_path / "edt.db")
    expected = _as_read_today(asset.with_suffix(".json"))
    store = Store.open(f"sqlite:///{tmp_path / 'edt.db'}")
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
    with store.write() as writer:
        writer.update_job("job-1", message="still writable")
        assert writer.append("x", job="job-1", data={}, time=0.0).seq == len(expected["events"]) + 1
    store.close()


def test_the_script_that_made_the_asset_still_runs(tmp_path):
    """Until the next revision it makes the present one; afterwards this test moves on with it."""
    spec = importlib.util.spec_from_file_location("make_database", ASSETS / "make_database.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.make(tmp_path)
    assert json.loads(made.with_suffix(".json").read_text()) == _as_read_today(
        (ASSETS / made.name).with_suffix(".json")
    )


def _as_read_today(path):
    """What was stored; a specification of then has the fields that came later, with their defaults."""
    expected = json.loads(path.read_text())
    for fields in expected["jobs"].values():
        fields["spec"] = _plain(msgspec.convert(fields["spec"], JobSpec))
    return expected


def _plain(value):
    return json.loads(msgspec.json.encode(value))
