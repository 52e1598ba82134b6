"""Events of a job: its story so far, or a stream of what happens, with the job as it is after each change."""

from __future__ import annotations

import time

from edt_jupyter.http.sse import PING, Record, Step, StreamHandler
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import JobView
from edt_server.service import Service

_PAGE = 1000
_BETWEEN_VIEWS = 0.5


class EventsHandler(StreamHandler):
    """`/jobs/{id}/events`."""

    auth_resource = "edt:jobs"

    async def get(self, job: str) -> None:
        """Events with a number above `after`."""
        if self.flag("follow"):
            after = self.resume_after() or "0"
            if not after.isdecimal():
                raise InvalidRequest(f"after is the number of an event, not {after!r}.", field="after")
            await self.stream(job, Follower(self.service, self.user, job, int(after)).step)
            return
        after_seq = self.number("after", 0)
        view = await self.service.job(self.user, job)
        limit = self.number("limit", _PAGE, low=1, high=100_000)
        events = await self.service.events(self.user, job, after=after_seq, limit=limit)
        last = events[-1].seq if events else after_seq
        self.reply({"events": events, "next": last, "done": view.state.final and len(events) < limit})


class Follower:
    """What one reader was told: events up to a number, and the job as it was last shown (at most twice a second)."""

    def __init__(self, service: Service, user: str, job: str, after: int) -> None:
        self._service = service
        self._user = user
        self._job = job
        self._after = after
        self._shown: JobView | None = None
        self._shown_at = 0.0

    async def step(self) -> Step:
        """What is new."""
        wait = self._shown_at + _BETWEEN_VIEWS - time.monotonic()
        # The view first: what happened after it makes the bell ring again. A training that goes on rings twice a second
        # and more; the view is made when it may be shown.
        view: JobView | None = None
        if wait <= 0 or self._service.ended(self._job):
            view = await self._service.job(self._user, self._job)
        events = await self._service.events(self._user, self._job, after=self._after, limit=_PAGE)
        records = [Record("event", event, str(event.seq)) for event in events]
        if events:
            self._after = events[-1].seq
        more = len(events) == _PAGE
        done = view is not None and view.state.final and not more
        if view is not None and view != self._shown and (wait <= 0 or done):
            records.append(Record("job", view))
            self._shown, self._shown_at = view, time.monotonic()
        pause = wait if view is None or view != self._shown else PING
        return Step(records, done, 0.0 if more else pause)
