"""Define `Picture`: a drawing of the server that displays itself in a cell.

It is shown as an `<img>` with a data URI, because notebooks strip inline `<svg>`. In plain text it is the sentence that
describes the picture.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from edt_sdk.http.connection import Connection, Params
from edt_sdk.pictures.parts.paper import image
from edt_sdk.schemas.errors import ServerUnreachable

_LINK = Path("/etc/localtime")


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """Holds a picture.

    Attributes:
        svg: the document, as text.
        says: one sentence that describes the picture.
    """

    svg: str
    says: str

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file, such as "loss.svg", and return the path."""
        target = Path(path).expanduser()
        target.write_text(self.svg, encoding="utf-8")
        return target

    def __repr__(self) -> str:
        return self.says

    def _repr_html_(self) -> str:
        return image(self.svg, self.says)


def fetch_picture(connection: Connection, path: str, params: Params) -> Picture:
    """Fetch the picture at a path of the server, with clock times in this process's time zone.

    Raises:
        EdtError: the server refused. ServerUnreachable also for an answer that is no picture.
    """
    query: Params = {**params, "zone": local_zone()}
    svg = connection.text(path, params=query)
    try:
        # Parsed also to detect a login page or half a document, which a notebook would store for good.
        return Picture(svg, ElementTree.fromstring(svg).get("aria-label", ""))
    except ElementTree.ParseError:
        raise ServerUnreachable(
            f"The server at {connection.url} did not send a whole picture.",
            hint="Try again; if it stays so, check that no login page stands in between.",
            url=connection.url,
        ) from None


def local_zone() -> str:
    """Return this machine's zone by a name such as "Europe/Berlin", else the current offset such as "+0100"."""
    # TZ wins, as in the C library. /etc/localtime names the zone where it is a link, which it is on most systems.
    name = os.environ.get("TZ", "").lstrip(":") or str(_LINK.resolve()).partition("/zoneinfo/")[2]
    with suppress(ValueError, ZoneInfoNotFoundError, OSError):
        return ZoneInfo(name).key
    return f"{datetime.now().astimezone():%z}"
