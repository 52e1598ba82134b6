"""The allocation timeline, of the whole machine and of one job's life."""

from __future__ import annotations

from tornado.web import authenticated

from edt_jupyter.authorization import authorized
from edt_jupyter.base import EdtHandler


class TimelineHandler(EdtHandler):
    """`/timeline`."""

    @authenticated
    @authorized("read", resource="edt:cluster")
    async def get(self) -> None:
        """Who held how many slots when, and why."""
        self.reply(await self.service.timeline(self.user))


class JobTimelineHandler(EdtHandler):
    """`/jobs/{id}/timeline`."""

    @authenticated
    @authorized("read", resource="edt:jobs")
    async def get(self, job: str) -> None:
        """The same while the job lived."""
        self.reply(await self.service.timeline(self.user, job))
