"""Explain errors of the database to the administrator: what happened, and what to do.

StoreError            the store cannot be used, and nothing in it was changed
└── StoreUnavailable  it cannot be used at this moment: uncommitted changes are lost, and a retry is right
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import ClassVar

from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from edt_sdk.schemas.errors import EdtError

_HINTS = (
    # SQLite's message, and what to do about it (https://sqlite.org/rescode.html).
    ("full", "The disk is full: free some space."),
    ("locked", "Another program holds it: end that program."),
    ("disk i/o error", "The disk may be full, over a quota, or failing: see `df` and `dmesg`."),
    ("readonly", "Make the file and its folder writable for the server's account."),
    ("unable to open", "Its folder must exist and be writable for the server's account."),
)
_BROKEN = ("malformed", "not a database", "file is encrypted")


class StoreError(EdtError):
    """The job store cannot be used. Nothing in it was changed."""

    code: ClassVar[str] = "store"


class StoreUnavailable(StoreError):
    """The job store cannot be used at this moment. What was to be written was not, and may be tried again."""

    status: ClassVar[int] = 503
    # What clients know as "not now": they wait and try again.
    code: ClassVar[str] = "server_unreachable"


def damaged(path: str | Path, said: str) -> StoreError:
    """Return the error for a damaged SQLite file, which must not be written to."""
    return StoreError(
        f"The job store {path} is damaged or no database at all ({said}). It was left as it is.",
        hint=(
            "Stop the server and put a backup in its place; or save what can be read (sqlite3 FILE .recover); or move "
            "it away: the server then starts with an empty store, and the results of earlier jobs stay on disk."
        ),
    )


def passing(wrong: BaseException) -> bool:
    """Return True for an error of the database, False for a mistake of the program."""
    if isinstance(wrong, OperationalError) and getattr(wrong.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        return False  # SQLite's word for SQL that it does not understand
    return isinstance(wrong, PoolTimeout | OperationalError | InterfaceError | InternalError) or (
        # Only SQLite raises this class itself, for a file that is no sound database.
        type(wrong) is DatabaseError
    )


def explain(engine: Engine, wrong: SQLAlchemyError) -> StoreError:
    """Return the driver's error as a StoreError for people. `wrong` is an error that `passing` recognises."""
    said = str(wrong.orig if isinstance(wrong, DBAPIError) else wrong).strip()
    if engine.dialect.name != "sqlite":
        return _server(engine, said)
    path = str(engine.url.database)
    if any(word in said.lower() for word in _BROKEN):
        return damaged(path, said)
    hint = next((f"{hint} The server goes on by itself." for word, hint in _HINTS if word in said.lower()), "")
    return StoreUnavailable(
        f"The job store {path} cannot be used now: {said}.",
        hint=hint or "Check that its folder is writable, its disk not full, and that no other program keeps it locked.",
    )


def _server(engine: Engine, said: str) -> StoreError:
    where = engine.url.render_as_string(hide_password=True)
    first = said.splitlines()[0] if said else "no answer"
    if "lock timeout" in said:
        hint = "Another server has been writing for long; see pg_stat_activity. This one goes on by itself."
    elif "read-only transaction" in said:
        hint = "The database is a standby, or set read-only: let c.EdtApp.db_url name the primary."
    elif "No space left" in said or "could not extend" in said:
        hint = "The database's disk is full: free some space. The server goes on by itself."
    elif "authentication failed" in said or "no password" in said or "does not exist" in said:
        hint = "Check user, password (~/.pgpass) and database in c.EdtApp.db_url, and that the database was created."
    else:
        hint = "Check that the database runs and that c.EdtApp.db_url names it. The server goes on by itself."
    return StoreUnavailable(f"The job store at {where} cannot be used now: {first}", hint=hint)
