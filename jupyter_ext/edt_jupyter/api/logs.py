"""Logs of a job: a page, plain text, or a stream that ends with the job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from edt_jupyter.http.sse import Record, Step, StreamHandler
from edt_server.outputs.logs import LogBatch, LogReader, as_text

_PAGE = 1000
_MOST = 100_000
# Files do not ring a bell when they grow.
_LOOK_AGAIN = 0.25


class LogsHandler(StreamHandler):
    """`/jobs/{id}/logs`."""

    auth_resource = "edt:logs"

    async def get(self, job: str) -> None:
        """Lines of the streams asked for, merged by time: behind a cursor, or from a moment on, or the last ones."""
        row = await self.service.mine(self.user, job)
        worker = self.number("worker", -1)
        follow = self.flag("follow")
        after = self.resume_after() if follow else self.get_query_argument("after", "")
        tail, since = self.number("tail", 0, low=0, high=_MOST), self.real("since")
        reader = LogReader(
            self.service.paths(row),
            stream=self.get_query_argument("stream", "all"),
            worker=worker if worker >= 0 else None,
            after=after,
        )
        limit = self.number("limit", _PAGE, low=1, high=_MOST)
        # Whoever comes back with a cursor has begun already.
        begin = partial(_begin, reader, tail=0 if after else tail, since=None if after else since)
        if follow:
            await self._follow(job, reader, begin)
        elif self.request.headers.get("Accept", "").startswith("text/plain"):
            await self._text(reader, begin, row.state.final)
        else:
            batch = await asyncio.to_thread(begin, limit=limit, final=row.state.final)
            self.reply({"lines": batch.lines, "next": batch.next, "done": batch.done})

    async def _follow(self, job: str, reader: LogReader, begin: Callable[..., LogBatch]) -> None:
        read = partial(begin, limit=_PAGE)

        async def step() -> Step:
            nonlocal read
            # The state first: whatever is in the files once the job has ended is all there will be.
            final = self.service.ended(job)
            batch = await asyncio.to_thread(read, final=final)
            read = partial(reader.read, limit=_PAGE)
            records = [Record("line", line, cursor) for line, cursor in zip(batch.lines, batch.cursors(), strict=True)]
            return Step(records, batch.done, 0.0 if len(records) >= _PAGE else _LOOK_AGAIN)

        await self.stream(job, step)

    async def _text(self, reader: LogReader, begin: Callable[..., LogBatch], final: bool) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        batch = await asyncio.to_thread(begin, limit=_PAGE, final=final)
        while batch.lines:
            self.write(as_text(batch.lines))
            await self.flush()
            batch = await asyncio.to_thread(reader.read, limit=_PAGE, final=final)
        self.finish(set_content_type="text/plain; charset=utf-8")


def _begin(reader: LogReader, *, tail: int, since: float | None, limit: int, final: bool) -> LogBatch:
    """The first lines. Blocks."""
    if since is not None:
        reader.begin(since)
    return reader.last(tail, final=final) if tail else reader.read(limit=limit, final=final)
