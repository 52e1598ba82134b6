"""Logs of a job: a page, plain text, or a stream that ends with the job."""

from __future__ import annotations

import asyncio
from functools import partial

from tornado.web import authenticated

from edt_jupyter.authorization import authorized
from edt_jupyter.sse import Record, Step, StreamHandler
from edt_server.logs import LogBatch, LogReader, as_text

_PAGE = 1000
_MOST = 100_000
# Files do not ring a bell when they grow.
_LOOK_AGAIN = 0.25


class LogsHandler(StreamHandler):
    """`/jobs/{id}/logs`."""

    @authenticated
    @authorized("read", resource="edt:logs")
    async def get(self, job: str) -> None:
        """Lines of the streams asked for, merged by time, after a cursor."""
        row = await self.service.mine(self.user, job)
        worker = self.number("worker", -1)
        reader = LogReader(
            self.service.paths(row),
            stream=self.get_query_argument("stream", "all"),
            worker=worker if worker >= 0 else None,
            after=self.resume_after() if self.flag("follow") else self.get_query_argument("after", ""),
        )
        limit = self.number("limit", _PAGE, low=1, high=_MOST)
        if self.flag("follow"):
            await self.stream(job, lambda: self._step(job, reader))
        elif self.request.headers.get("Accept", "").startswith("text/plain"):
            await self._text(reader, row.state.final)
        else:
            tail = self.number("tail", 0, low=0, high=_MOST)
            read = partial(reader.last, tail) if tail else partial(reader.read, limit=limit)
            batch = await asyncio.to_thread(read, final=row.state.final)
            self.reply({"lines": batch.lines, "next": batch.next, "done": batch.done})

    async def _step(self, job: str, reader: LogReader) -> Step:
        # The state first: whatever is in the files once the job has ended is all there will be.
        final = self.service.ended(job)
        batch: LogBatch = await asyncio.to_thread(reader.read, limit=_PAGE, final=final)
        records = [Record("line", line, cursor) for line, cursor in zip(batch.lines, batch.cursors, strict=True)]
        return Step(records, batch.done, 0.0 if len(records) == _PAGE else _LOOK_AGAIN)

    async def _text(self, reader: LogReader, final: bool) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        while True:
            batch = await asyncio.to_thread(reader.read, limit=_PAGE, final=final)
            self.write(as_text(batch.lines))
            await self.flush()
            if not batch.lines:
                break
        self.finish(set_content_type="text/plain; charset=utf-8")
