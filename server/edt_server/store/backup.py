"""Copy the store before a migration changes it, so that a failed migration loses nothing.

SQLite: the online backup API writes `<file>.before-<revision>` next to the file (0600), and the copy is kept.
`<revision>` is the one the store is migrated to. PostgreSQL: a migration is one transaction there, and the
administrator has backups of the whole database. Where pg_dump is installed and a folder is given, a dump is made as
well. Otherwise the log describes how to make one.
"""

from __future__ import annotations

import contextlib
import filecmp
import logging
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

from sqlalchemy import Connection, Engine

from edt_server.store.errors import StoreError

log = logging.getLogger(__name__)

_PAGES = 4096  # copied at a time
_DUMP_LIMIT = 3600.0


def back_up(connection: Connection, revision: str, folder: Path | None = None) -> str:
    """Copy the store as it is, before it is brought to `revision`. StoreError when there is no room for a copy.

    The connection's transaction has written nothing yet. PostgreSQL is dumped into `folder`, where one is given.

    Returns:
        Where the copy is, or how to make one, as a sentence for the administrator.
    """
    engine = connection.engine
    if engine.dialect.name != "sqlite":
        return _dump(engine, revision, folder)
    file = Path(str(engine.url.database))
    try:
        copy = _copy(file, revision)
    except (OSError, sqlite3.Error) as wrong:
        raise StoreError(
            f"The job store {file} has to be brought to revision {revision}, and the backup that is made first could "
            f"not be written: {wrong}. The store was left as it is.",
            hint=f"Make room for {file.stat().st_size:,} bytes in {file.parent}, and start the server again.",
        ) from wrong
    log.warning("the job store is brought to revision %s; a backup of it is kept in %s", revision, copy)
    return f"A backup of it is in {copy}."


def _copy(file: Path, revision: str) -> Path:
    draft = file.with_name(f"{file.name}.backup-{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(sqlite3.connect(file)) as source, contextlib.closing(sqlite3.connect(draft)) as target:
            # The online backup, not a copy of the file: in WAL mode the newest commits are in another file.
            source.backup(target, pages=_PAGES)
            found = target.execute("PRAGMA quick_check(1)").fetchone()[0]
            target.execute("PRAGMA journal_mode=DELETE").close()  # one file, also when it is only looked at
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        with draft.open("rb") as written:
            # On the disk before the migration starts, or a power failure could cost both.
            os.fsync(written.fileno())
        return _keep(draft, file.with_name(f"{file.name}.before-{revision}"))
    finally:
        draft.unlink(missing_ok=True)


def _keep(draft: Path, wanted: Path) -> Path:
    """Give the copy its name. An earlier one is never replaced, and one that is the same is enough."""
    name, number = wanted, 1
    while name.exists():
        if filecmp.cmp(draft, name, shallow=False):
            return name
        number += 1
        name = wanted.with_name(f"{wanted.name}.{number}")
    draft.rename(name)
    return name


def _dump(engine: Engine, revision: str, folder: Path | None) -> str:
    url = engine.url.set(drivername="postgresql")
    shown = url.set(password=None).render_as_string()
    program = shutil.which("pg_dump")
    if folder is None or program is None:
        how = f"pg_dump --format=custom --file=edt-before-{revision}.dump '{shown}'"
        log.warning(
            "the job store is brought to revision %s in one transaction; to back it up first, use: %s%s",
            revision,
            how,
            "" if program else " (Debian's package postgresql-client)",
        )
        return "It was changed in one transaction, which was undone."
    file = folder / f"edt-before-{revision}.dump"
    number = 1
    while file.exists():
        number += 1
        file = folder / f"edt-before-{revision}.{number}.dump"
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        subprocess.run(
            [program, "--format=custom", f"--file={file}", "--no-password", f"--dbname={shown}"],
            env={**os.environ, **({"PGPASSWORD": str(url.password)} if url.password else {})},
            check=True,
            capture_output=True,
            text=True,
            timeout=_DUMP_LIMIT,
        )
    except (OSError, subprocess.SubprocessError) as wrong:
        file.unlink(missing_ok=True)
        said = getattr(wrong, "stderr", None) or str(wrong)
        # The migration is one transaction: it does not need the dump in order to be undone.
        log.warning("no dump of the job store could be made before revision %s: %s", revision, str(said).strip())
        return "It was changed in one transaction, which was undone."
    log.warning("the job store is brought to revision %s; a dump of it is kept in %s", revision, file)
    return f"A dump of it is in {file}."
