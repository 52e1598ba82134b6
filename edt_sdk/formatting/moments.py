"""Parse a time as people write it: "2h" (ago), "14:30" (the last one), a date, or a number.

Pure: the caller passes the current time. A time without a zone is in this machine's.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from edt_sdk.schemas.errors import InvalidRequest

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)\Z")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def moment(given: float | str | datetime, now: float) -> float:
    """Return seconds since the epoch.

    Args:
        given: seconds since the epoch, a datetime, or a text: "30m", "2h" or "1d" for a time ago, "14:30" for the last
            time the clock showed it, "2026-05-01" or "2026-05-01T14:30" with or without a zone.
        now: seconds since the epoch.

    Raises:
        InvalidRequest: `given` is none of these.
    """
    if isinstance(given, datetime):
        return given.timestamp()
    found = _read(given.strip(), now) if isinstance(given, str) else float(given)
    if found is None or not math.isfinite(found):
        raise InvalidRequest(
            f"{given!r} is no time.", hint='Write "2h" for two hours ago, "14:30", "2026-05-01T14:30" or seconds.'
        )
    return found


def _read(text: str, now: float) -> float | None:
    if ago := _AGO.match(text):
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        if clock := _CLOCK.match(text):
            hour, minute, second = (int(part or 0) for part in clock.groups())
            shown = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=second, microsecond=0)
            # A time that is still to come today means yesterday's.
            return (shown if shown.timestamp() <= now else shown - timedelta(days=1)).timestamp()
        if re.match(r"\d{4}-", text):
            return datetime.fromisoformat(text).timestamp()
        return float(text)
    except (ValueError, OverflowError):
        return None
