"""The server's pictures as a monitor shows them: an `<img>` with the sentence that the picture says of itself."""

from __future__ import annotations

import re
from html import unescape

from edt_sdk.connection import Connection, Params
from edt_sdk.pictures import image

_SAYS = re.compile(r'<svg[^>]*\baria-label="([^"]*)"')


def drawing(connection: Connection, path: str, **params: str | int | float | None) -> str:
    """The picture at `path`, such as "jobs/edt-1/pictures/loss", as HTML; EdtError when there is none."""
    query: Params = dict(params)
    svg = connection.text(path, params=query)
    found = _SAYS.search(svg)
    return image(svg, unescape(found[1]) if found else "a picture of this job")
