"""Server-sent events: an answer that lasts until the job ends, the reader leaves, or the server stops.

The records come from a `step` that keeps its own position, so resuming means starting there. Comments between records
keep proxies from timing out. Format: the HTML standard, section 9.2.5.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from tornado.iostream import StreamClosedError

from edt_jupyter.http.base import EdtHandler
from edt_server.service import Subscription

PING = 15.0


@dataclass(frozen=True, slots=True)
class Record:
    """One event: its name, its data, and the id to resume after (None where resuming is impossible)."""

    event: str
    data: Any
    id: str | None = None

    def encode(self) -> bytes:
        """Return the event as it is sent."""
        head = f"event: {self.event}\n" + (f"id: {self.id}\n" if self.id is not None else "")
        # JSON has no bare line breaks, so the data is one line.
        return head.encode() + b"data: " + msgspec.json.encode(self.data) + b"\n\n"


@dataclass(frozen=True, slots=True)
class StreamStep:
    """The records to send now, whether they are the last, and the seconds until the next poll without a wake-up."""

    records: Iterable[Record]
    done: bool
    pause: float = PING


class StreamHandler(EdtHandler):
    """A handler with answers that may be streams."""

    _watch: Subscription | None = None

    def resume_after(self) -> str:
        """Return the cursor to resume after: Last-Event-ID of a reader that reconnects, else `?after=`."""
        return self.request.headers.get("Last-Event-ID", "") or self.get_query_argument("after", "")

    async def stream(self, job: str, step: Callable[[], Awaitable[StreamStep]]) -> None:
        """Send what `step` returns until it is done. It is called again whenever the job changed."""
        # Subscribed before the first step: a change between a step and the wait is not missed.
        with self.service.hub.watch(job) as watch:
            self._watch = watch
            first = await step()  # an error of the first step is still an answer with its own status
            self.set_header("Content-Type", "text/event-stream")
            self.set_header("Cache-Control", "no-store")
            self.set_header("X-Accel-Buffering", "no")
            try:
                await self._send(first, step, watch)
            except StreamClosedError:
                return
        if not self._finished:
            self.finish(set_content_type="text/event-stream")

    async def _send(self, now: StreamStep, step: Callable[[], Awaitable[StreamStep]], watch: Subscription) -> None:
        self.write(b": jupyter-edt\n\n")
        sent = time.monotonic()
        while True:
            for record in now.records:
                self.write(record.encode())
            await self.flush()
            if now.done:
                self.write(Record("end", {}).encode())
                await self.flush()
                return
            await watch.wait(min(now.pause, PING))
            if watch.closed:  # without `end` the reader reconnects, to this server or the next
                return
            now = await step()
            if now.records:
                sent = time.monotonic()
            # A heartbeat, because proxies end a connection that is silent for their timeout.
            elif time.monotonic() - sent >= PING:
                self.write(b": still here\n\n")
                sent = time.monotonic()

    def on_connection_close(self) -> None:
        """Stop at once when the reader has gone, not at the next record."""
        if self._watch is not None:
            self._watch.close()
        super().on_connection_close()
