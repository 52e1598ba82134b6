"""Which time zone this machine's clock is in, by a name that another machine understands."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LINK = Path("/etc/localtime")


def local_zone() -> str:
    """Such as "Europe/Berlin", where TZ or the system says so; else the offset that holds now, such as "+0100"."""
    named = os.environ.get("TZ", "").lstrip(":")
    for name in (named,) if named else (_of_link(),):
        if _known(name):
            return name
    return f"{datetime.now().astimezone():%z}"


def _of_link() -> str:
    """The zone whose file the system's clock uses, "" where that is not told."""
    return str(_LINK.resolve()).partition("/zoneinfo/")[2]


def _known(name: str) -> bool:
    if not name:
        return False
    try:
        ZoneInfo(name)
    except (ValueError, ZoneInfoNotFoundError, OSError):
        return False
    return True
