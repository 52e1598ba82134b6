"""Show the output of a job while it runs: logs, metrics, events, checkpoints, and the result as a zip."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial

from tornado.iostream import StreamClosedError

from edt_jupyter.http.base import EdtHandler
from edt_jupyter.http.sse import PING, Record, StreamHandler, StreamStep
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.job import JobView
from edt_server.outputs.logs import LogBatch, LogReader
from edt_server.outputs.metrics import DEFAULT_POINTS, MetricsReader, thin
from edt_server.outputs.results import ResultZip
from edt_server.service import Service

_PAGE = 1000
_MOST = 100_000
# A file that grows does not wake up a watcher, so it is polled.
_LOGS_AGAIN = 0.25
_METRICS_AGAIN = 0.5
_BETWEEN_VIEWS = 0.5
_PIECE = 1 << 20


class _LogsHandler(StreamHandler, path="/jobs/{id}/logs", resource="edt:logs"):
    async def get(self, job: str) -> None:
        """Return lines of the chosen streams, merged by time: after a cursor, since a time, or the last ones."""
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
        # A client that returns with a cursor has the first lines already.
        begin = partial(_begin, reader, tail=0 if after else tail, since=None if after else since)
        if follow:
            await self._follow(job, reader, begin)
        elif self.request.headers.get("Accept", "").startswith("text/plain"):
            # Page by page: the log of a week must not be held in memory.
            await self._text(reader, begin, row.state.final)
        else:
            batch = await asyncio.to_thread(begin, limit=limit, final=row.state.final)
            self.reply({"lines": batch.lines, "next": batch.next, "done": batch.done})

    async def _follow(self, job: str, reader: LogReader, begin: Callable[..., LogBatch]) -> None:
        read = partial(begin, limit=_PAGE)

        async def step() -> StreamStep:
            nonlocal read
            # The state first: the files of an ended job are complete.
            final = self.service.ended(job)
            batch = await asyncio.to_thread(read, final=final)
            read = partial(reader.read, limit=_PAGE)
            records = [Record("line", line, cursor) for line, cursor in zip(batch.lines, batch.cursors(), strict=True)]
            # After a full page there may be more now. Otherwise the files are polled, because a file wakes no
            # subscriber.
            return StreamStep(records, batch.done, 0.0 if len(records) >= _PAGE else _LOGS_AGAIN)

        await self.stream(job, step)

    async def _text(self, reader: LogReader, begin: Callable[..., LogBatch], final: bool) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        batch = await asyncio.to_thread(begin, limit=_PAGE, final=final)
        while batch.lines:
            # One by one, because a text with one emoji takes four bytes a character.
            for line in batch.lines:
                self.write(f"{line.text}\n")
            await self.flush()
            batch = await asyncio.to_thread(reader.read, limit=_PAGE, final=final)
        self.finish(set_content_type="text/plain; charset=utf-8")


def _begin(reader: LogReader, *, tail: int, since: float | None, limit: int, final: bool) -> LogBatch:
    """Read the first lines. Blocks."""
    if since is not None:
        reader.begin(since)
    return reader.last(tail, final=final) if tail else reader.read(limit=limit, final=final)


class _MetricsHandler(StreamHandler, path="/jobs/{id}/metrics", resource="edt:logs"):
    async def get(self, job: str) -> None:
        """Return points after a cursor. The training curve is thinned to `points`, validations are complete."""
        row = await self.service.mine(self.user, job)
        if self.flag("follow"):
            reader = MetricsReader(self.service.paths(row), after=self.resume_after())
            await self.stream(job, lambda: self._step(job, reader))
            return
        points = self.number("points", DEFAULT_POINTS, low=4, high=1_000_000)
        reader = MetricsReader(self.service.paths(row), after=self.get_query_argument("after", ""))
        batch = await asyncio.to_thread(reader.read_all, final=row.state.final)
        # Only the training curve is thinned: validations are few, and each of them matters.
        train = await asyncio.to_thread(thin, batch.of_kind("train"), points)
        speeds = await asyncio.to_thread(self.service.pictures.speeds, self.service.paths(row))
        test = batch.of_kind("test")
        self.reply({"train": train, "test": test, "speeds": speeds, "next": batch.next, "done": batch.done})

    async def _step(self, job: str, reader: MetricsReader) -> StreamStep:
        # The state before the file: when the job ends in between, the next step reads the last points.
        final = self.service.ended(job)
        batch = await asyncio.to_thread(reader.read, final=final)
        records = [Record("metric", point, cursor) for point, cursor in zip(batch.points, batch.cursors, strict=True)]
        return StreamStep(records, batch.done, _METRICS_AGAIN)


class _EventsHandler(StreamHandler, path="/jobs/{id}/events", resource="edt:jobs"):
    async def get(self, job: str) -> None:
        """Return events with a number above `after`."""
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
    """The position of a reader: events up to a number, and the job as it was last shown (at most twice a second)."""

    def __init__(self, service: Service, user: str, job: str, after: int) -> None:
        self._service = service
        self._user = user
        self._job = job
        self._after = after
        self._shown: JobView | None = None
        self._shown_at = 0.0

    async def step(self) -> StreamStep:
        """Return the records since the last step."""
        wait = self._shown_at + _BETWEEN_VIEWS - time.monotonic()
        # The view first: a later change wakes the watcher again. A running training wakes it at least twice a
        # second, and the view is made only when it may be shown.
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
        return StreamStep(records, done, 0.0 if more else pause)


class _CheckpointsHandler(EdtHandler, path="/jobs/{id}/checkpoints", resource="edt:artifacts"):
    async def get(self, job: str) -> None:
        """Return name, epoch, size and time of each checkpoint."""
        self.reply({"checkpoints": await self.service.checkpoints(self.user, job)})


class _ResultHandler(EdtHandler, path="/jobs/{id}/result", resource="edt:artifacts"):
    async def get(self, job: str) -> None:
        """Send a part of the result as a zip."""
        await send_archive(self, await self.service.result(self.user, job, self.get_query_argument("part", "all")))


async def send_archive(handler: EdtHandler, archive: ResultZip) -> None:
    """Answer with a zip that is made while it is sent."""
    handler.set_header("Content-Type", "application/zip")
    # Known before the first byte, so that a client notices a download that was cut off (docs/decisions/008).
    handler.set_header("Content-Length", archive.size)
    handler.set_header("Content-Disposition", archive.disposition)
    try:
        while piece := await asyncio.to_thread(_piece, archive.chunks):
            handler.write(piece)
            await handler.flush()
    except StreamClosedError:
        return
    handler.finish(set_content_type="application/zip")


def _piece(chunks: Iterator[bytes]) -> bytes:
    """Return about a mebibyte of the stream, b"" at its end: a small piece is not worth a thread."""
    piece = bytearray()
    for chunk in chunks:
        piece += chunk
        if len(piece) >= _PIECE:
            break
    return bytes(piece)
