"""Bringing a database to the newest revision, and refusing one we must not touch.

The migrations lie in this package as plain Python files and run from here, never by hand. Everything happens in one
transaction: two servers that start at once on a new file do not collide, and a migration that fails leaves nothing. A
store with something in it is copied before (`backup.py`).
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from edt_server.store.backup import back_up
from edt_server.store.errors import StoreError, passing

VERSION_TABLE = "edt_schema"
MIGRATIONS = Path(__file__).with_name("migrations")


def config(connection: Connection) -> Config:
    """Return alembic's configuration for this connection (see migrations/env.py)."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def revision(connection: Connection) -> str | None:
    """Return the revision of the database, None for an empty one."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def migrate(connection: Connection, backups: Path | None = None) -> None:
    """Migrate the database to the newest revision, within the connection's transaction, which has written nothing.

    PostgreSQL is dumped into the folder `backups`, where one is given. After a StoreError the caller rolls back.
    """
    settings = config(connection)
    scripts = ScriptDirectory.from_config(settings)
    newest, present = scripts.get_current_head(), revision(connection)
    if present == newest:
        return
    known = {script.revision for script in scripts.walk_revisions()}
    # Never guess what a newer release has written: a downgrade could destroy it.
    if present is not None and present not in known:
        raise StoreError(
            f"The job store has revision {present}; this release of jupyter-edt knows revisions up to {newest}. "
            "A newer release wrote it.",
            hint="Install that release again (pip install -U jupyter-edt), or give this one another c.EdtApp.data_dir.",
        )
    # Only a store with something in it: a new file has nothing to lose.
    copy = back_up(connection, str(newest), backups) if present is not None else ""
    try:
        command.upgrade(settings, "head")
    except SQLAlchemyError as wrong:
        if passing(wrong):
            raise
        said = str(wrong.orig if isinstance(wrong, DBAPIError) else wrong).strip()
        raise StoreError(
            f"The job store could not be brought from revision {present} to {newest}: {said}. It was left as it was.",
            hint=f"{copy} Install the release that wrote the store, and report this sentence as a defect.".strip(),
        ) from wrong
