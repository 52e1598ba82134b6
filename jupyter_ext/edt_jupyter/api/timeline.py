"""The allocation timeline, of the whole machine and of one job's life.

`?start=` and `?end=`, seconds since the epoch, ask for a window, exact to the event; `?points=` for that many rows.
"""

from __future__ import annotations

from typing import Any

from edt_jupyter.http.base import EdtHandler
from edt_server.history import MOST_POINTS


class _Windowed(EdtHandler):
    def window(self) -> dict[str, Any]:
        """What was asked for; InvalidRequest for what is no time or no number."""
        points = self.number("points", 0, low=2, high=MOST_POINTS)
        return {"start": self.real("start"), "end": self.real("end"), "points": points or None}


class TimelineHandler(_Windowed):
    """`/timeline`."""

    auth_resource = "edt:cluster"

    async def get(self) -> None:
        """Who held how many slots when, and why."""
        self.reply(await self.service.timeline(self.user, **self.window()))


class JobTimelineHandler(_Windowed):
    """`/jobs/{id}/timeline`."""

    auth_resource = "edt:jobs"

    async def get(self, job: str) -> None:
        """The same while the job lived."""
        self.reply(await self.service.timeline(self.user, job, **self.window()))
