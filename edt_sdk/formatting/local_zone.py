"""Find the time zone of this machine, by a name that other machines understand."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LINK = Path("/etc/localtime")


def local_zone() -> str:
    """Return a name such as "Europe/Berlin" from TZ or the system, else the current offset such as "+0100"."""
    named = os.environ.get("TZ", "").lstrip(":")
    # TZ wins over the system's zone, as in the C library.
    for name in (named,) if named else (_of_link(),):
        if _known(name):
            return name
    return f"{datetime.now().astimezone():%z}"


def _of_link() -> str:
    """Return the zone from the target of /etc/localtime, "" if the path does not contain it."""
    # A link on most systems. Where it is a copy of the zone's file, its path does not contain the name.
    return str(_LINK.resolve()).partition("/zoneinfo/")[2]


def _known(name: str) -> bool:
    if not name:
        return False
    try:
        ZoneInfo(name)
    except (ValueError, ZoneInfoNotFoundError, OSError):
        return False
    return True
