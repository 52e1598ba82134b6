"""The server's pictures as a monitor shows them: an `<img>` with the sentence that the picture says of itself."""

from __future__ import annotations

from edt_sdk.display.picture import fetch_picture
from edt_sdk.http.connection import Connection


def drawing(connection: Connection, path: str, **params: str | int | float | None) -> str:
    """The picture at `path`, such as "jobs/edt-1/pictures/loss", as HTML; EdtError when there is none."""
    return fetch_picture(connection, path, params)._repr_html_()
