"""Make SQLAlchemy engines with the settings the store relies on.

For SQLite: foreign keys, a busy timeout, WAL (a rollback journal on network file systems), and transactions that really
start where SQLAlchemy starts them. sqlite3 alone starts them late, and a reader that turns into a writer then fails
with "database is locked" whatever the timeout. Writers therefore use BEGIN IMMEDIATE. `postgres.py` has PostgreSQL's
settings. WAL shares memory between processes through a mapped file, which hosts of a network file system do not share
(https://sqlite.org/wal.html, "all processes using a database must be on the same host").

`synchronous=FULL`, not NORMAL: a committed change is acted on and acknowledged to supervisors, which never send it
again. With NORMAL a power cut may undo the last commits, and the store would be behind the supervisors.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from edt_server.store.errors import StoreError, StoreUnavailable, damaged
from edt_server.store.postgres import WRITING, postgres_engine

log = logging.getLogger(__name__)

BUSY_TIMEOUT_MS = 5_000
_SQLITE_MAGIC = b"SQLite format 3\0"
_NETWORK = re.compile(
    r"9p|afs|beegfs|ceph|cifs|glusterfs|gpfs|lustre|ncpfs|nfs4?|smb3|smbfs|fuse\.(ceph|gcsfuse|glusterfs|s3fs|sshfs)"
)
_MOUNTS = Path("/proc/self/mountinfo")


def sqlite_url(path: Path) -> str:
    """Return the URL of an SQLite file at `path`, whatever characters are in it."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def make_engine(url: str) -> Engine:
    """Return an engine for the store's URL. Creates the folder of an SQLite file (0700) and the file itself (0600)."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
        if backend == "sqlite":
            return _sqlite(parsed)
        if backend in ("postgresql", "postgres"):
            return postgres_engine(parsed, _to_json)
        if backend not in ("mysql", "mariadb", "mssql", "oracle"):
            raise NoSuchModuleError(backend)
        raise StoreError(
            f"The job store cannot be kept in {backend}.",
            hint="Set c.EdtApp.db_url to a PostgreSQL database (postgresql+psycopg://host/edt), or leave it unset.",
        )
    except (ArgumentError, NoSuchModuleError) as wrong:
        # A URL that could not be parsed may contain a password, so it is shown without user and password.
        head, at, tail = url.rpartition("@")
        shown = f"{head.split('://')[0]}://…@{tail}" if at else url
        raise StoreError(
            f"This is not the URL of a database we know: {shown}.",
            hint="Set c.EdtApp.db_url to something like sqlite:////srv/edt/store.db, or leave it unset.",
        ) from wrong
    except ImportError as missing:
        raise StoreError(
            f"The database driver psycopg cannot be used: {missing}.",
            hint="Install it into the server's environment: pip install 'jupyter-edt[postgresql]'.",
        ) from missing


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:" or url.query:
        raise StoreError(
            f"The job store must be a plain file, not {url}.", hint="Use a URL such as sqlite:////srv/edt/store.db."
        )
    path = Path(url.database)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Created here and not by SQLite, which would make it readable for others under a usual umask.
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb") as file:
            start = file.read(len(_SQLITE_MAGIC))
    except OSError as wrong:
        raise StoreUnavailable(
            f"The job store {path} cannot be written: {wrong.strerror}.",
            hint="Make its folder writable for the server, or set c.EdtApp.data_dir to another one.",
        ) from wrong
    if start and start != _SQLITE_MAGIC:
        # SQLite itself takes a file of a few bytes for an empty database and would write over it.
        raise damaged(path, "it does not begin as an SQLite file does")
    network = network_filesystem(path)
    if network is not None:
        log.warning(
            "the job store %s is on a network file system (%s): it is kept without WAL and must have one server only; "
            "for more than one set c.EdtApp.db_url to a local file or a PostgreSQL database",
            path,
            network,
        )
    engine = create_engine(
        url,
        json_serializer=_to_json,
        json_deserializer=msgspec.json.decode,
        connect_args={"timeout": BUSY_TIMEOUT_MS / 1000},
    )
    journal = "WAL" if network is None else "DELETE"

    @event.listens_for(engine, "connect")
    def settings(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we begin transactions ourselves, below
        for pragma in ("foreign_keys=ON", f"journal_mode={journal}", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get(WRITING, False)
        # A reader that becomes a writer fails with "database is locked", whatever the timeout. A writer takes the lock
        # at once.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def network_filesystem(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the type of the network file system that holds `path`.

    None for a local one, or where the system has no answer. proc(5), /proc/pid/mountinfo, has the format of the lines.
    """
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    # The mount of the file itself counts, not of a link to it.
    real, best, kind = os.path.realpath(path), "", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].encode().decode("unicode_escape")  # a space in a mount point is written \040
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # The deepest mount counts, and of equals the last: it is mounted over the earlier one.
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind if _NETWORK.fullmatch(kind) else None


def _to_json(value: Any) -> str:
    # NaN becomes null: a diverged loss must not make a row that no other JSON reader accepts.
    return msgspec.json.encode(value).decode()
