"""The time window of a timeline or picture: the query for the server, and its answer as a `Timeline`."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from edt_sdk.display.readings import Timeline
from edt_sdk.formatting.moments import moment
from edt_sdk.http.connection import Params

When = float | str | datetime | None


def timeline_window(since: When, until: When, points: int | None) -> Params:
    """Return the query for a window of a timeline. InvalidRequest for a text that is not a time."""
    # One present for both ends, so that a relative window has exactly its length.
    now = time.time()
    start, end = (None if when is None else moment(when, now) for when in (since, until))
    return {"start": start, "end": end, "points": points}


def read_timeline(answer: Any, window: Params) -> Timeline:
    """Return the server's answer as a timeline. One of a window reaches to the window's end."""
    found = msgspec.convert(answer, Timeline)
    end = window.get("end")
    return found if end is None else replace(found, until=float(end))
