"""What goes wrong with the store itself, told to the administrator who starts the server."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from edt_sdk.schemas.errors import EdtError


class StoreError(EdtError):
    """The job store cannot be opened; nothing in it was changed."""

    code: ClassVar[str] = "store"


def damaged(path: str | Path, said: str) -> StoreError:
    """The error for an SQLite file that must not be written to."""
    return StoreError(
        f"The job store {path} is damaged or no database at all ({said}). It was left as it is.",
        hint=(
            "Put a backup in its place; or save what can be read (sqlite3 FILE .recover); or move it away: the server "
            "then starts with an empty store, and the results of earlier jobs stay on disk."
        ),
    )
