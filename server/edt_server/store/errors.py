"""What goes wrong with the store itself, told to the administrator who starts the server."""

from __future__ import annotations

from typing import ClassVar

from edt_sdk.schemas.errors import EdtError


class StoreError(EdtError):
    """The job store cannot be opened; nothing in it was changed."""

    code: ClassVar[str] = "store"
