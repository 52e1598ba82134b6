"""The server's pictures as a monitor shows them: an `<img>` with the sentence that the picture says of itself."""

from __future__ import annotations

from edt_sdk.connection import Connection
from edt_sdk.picture import fetch_picture


def drawing(connection: Connection, path: str, **params: str | int | float | None) -> str:
    """The picture at `path`, such as "jobs/edt-1/pictures/loss", as HTML; EdtError when there is none."""
    return fetch_picture(connection, path, params)._repr_html_()
