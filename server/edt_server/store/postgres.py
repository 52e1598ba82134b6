"""Use PostgreSQL as the job store: one writer at a time, and events that become visible in the order of their numbers.

A sequence hands out numbers before a transaction commits. Two concurrent transactions could commit 8 before 7, and a
reader that had seen 8 would never look for 7. Writers therefore hold one advisory lock of the schema from start to end.
PostgreSQL releases it only after the commit is visible, so a reader that has seen n has seen everything below n.
Numbers of transactions that were rolled back are never used.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event

from edt_server.store.errors import StoreError

WRITING = "edt_writing"
LOCK = 0x4544541  # first half of the advisory lock's key, the second half is the schema
LOCK_TIMEOUT_MS = 10_000
# How long a server that hangs, or that is on a dead host, may keep the other servers from writing: the lock's timeout.
_IDLE_TIMEOUT_MS = 15_000
_DRIVERS = ("postgresql", "postgresql+psycopg")
# libpq settings: an unreachable host is noticed in seconds, not after the two hours of TCP's default keepalive.
_CONNECT = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "jupyter-edt",
    "client_encoding": "utf8",
}
# In one round trip. What is committed is acted upon, so the commit must not be lost with the database's machine.
_BEGIN = f"""
SELECT set_config('lock_timeout', '{{lock_timeout}}', true),
       set_config('idle_in_transaction_session_timeout', '{_IDLE_TIMEOUT_MS}', true),
       CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END,
       pg_advisory_xact_lock({LOCK}, hashtext(coalesce(current_schema(), '')))
"""


def postgres_engine(url: URL, to_json: Any) -> Engine:
    """Return an engine for a PostgreSQL URL, without connecting. ImportError when psycopg is not installed."""
    if url.drivername not in _DRIVERS:
        raise StoreError(
            f"The job store speaks with PostgreSQL through psycopg, not {url.drivername}.",
            hint="Let c.EdtApp.db_url begin with postgresql+psycopg://.",
        )
    defaults = {name: value for name, value in _CONNECT.items() if name not in url.query}
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        # The pool silently replaces a connection that the database closed while it was idle.
        pool_pre_ping=True,
        json_serializer=to_json,
        json_deserializer=msgspec.json.decode,
        connect_args=defaults,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(WRITING, False):
            connection.exec_driver_sql(_BEGIN.format(lock_timeout=LOCK_TIMEOUT_MS)).close()

    return engine


def check_encoding(connection: Connection) -> None:
    """Raise StoreError for a database that cannot hold every text."""
    encoding = connection.exec_driver_sql("SELECT current_setting('server_encoding')").scalar_one()
    if encoding != "UTF8":
        raise StoreError(
            f"The job store's database has the encoding {encoding}; it cannot hold every name and message.",
            hint="Make another one: createdb --encoding=UTF8 --template=template0 edt",
        )
