"""Decide the ownership of jobs, and who is an admin, in this one place.

A user is a name that is safe as a folder name (`owner_name`). A job belongs to the user that submitted it, as a search
does, and only that user may do anything with it. Other users see `views.public_view`: enough to understand how the
slots are shared, nothing of the job's work and output. An admin may change the plan, and has no other rights over jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set
from typing import TypeVar
from urllib.parse import quote

from edt_sdk.schemas.errors import NotAllowed
from edt_server.store import JobRow
from edt_server.store.search_rows import SearchRow

_LONGEST = 200
Row = TypeVar("Row", JobRow, SearchRow)


def may(user: str, owner: str) -> bool:
    """Return whether `user` may do anything with a job of `owner`."""
    return user == owner


def checked(user: str, row: Row) -> Row:
    """Return the job or the search. NotAllowed unless `user` may do anything with it."""
    if not may(user, row.owner):
        kind = "search" if isinstance(row, SearchRow) else "job"
        raise NotAllowed(
            f"{kind.capitalize()} {row.id} belongs to {row.owner}, and you are {user}.",
            hint="Only its owner may see or change it.",
            **{kind: row.id},
        )
    return row


def is_admin(user: str, admins: Set[str] | None) -> bool:
    """Return whether `user` may change the plan and the hosts. `admins` is None where every user may."""
    return admins is None or user in admins


def check_admin(user: str, admins: Set[str] | None, what: str = "change the plan") -> None:
    """Raise NotAllowed, which names `what`, unless `user` may change the plan and the hosts."""
    if admins is None or user in admins:
        return
    named = f"its admins may, {', '.join(sorted(admins))}" if admins else "it has no admin yet"
    raise NotAllowed(
        f"You are {user}, and may not {what} of this server: {named}.",
        hint=f"The server's administrator adds {user!r} to c.EdtApp.admins in its configuration, and restarts it.",
    )


def owner_name(username: str) -> str:
    """Return `username` as a folder name. Different names stay different.

    What could leave a folder or hide one is percent-encoded, and a name too long for a folder ends in its hash.
    """
    name = quote(username, safe="@+")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _LONGEST:
        name = name[: _LONGEST - 33] + "-" + hashlib.sha256(username.encode()).hexdigest()[:32]
    return name or "%"
