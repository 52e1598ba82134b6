"""Waiting for a job: one thread reads its events, whatever happens to the connection in between.

`watch` is the only loop over a job's events in the SDK; `Job.wait`, `await job`, the monitor and the command line use
it. Ending a wait never touches the job.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, TypeVar

import msgspec

from edt_sdk.card import being_suspended, short_line
from edt_sdk.connection import Connection
from edt_sdk.packing import PROGRESS_AFTER, QUIET_VARIABLE
from edt_sdk.schemas.job import JobView

T = TypeVar("T")


def watch(
    connection: Connection,
    job_id: str,
    *,
    stop: threading.Event | None = None,
    deadline: float | None = None,
) -> Iterator[JobView | None]:
    """The job now and after every change, until it has ended; None at signs of life in between.

    Ends early, without a word, when `stop` is set or `time.monotonic()` passes `deadline`.

    Raises:
        NotFound: there is no such job (any more).
        ServerUnreachable: no connection for two minutes.
    """
    after = ""
    while True:
        # A view of one's own first: an event stream tells changes, and the job may have ended long ago.
        view = fetch(connection, job_id)
        yield view
        if view.state.final:
            return
        for event in connection.follow(f"jobs/{job_id}/events", after=after, stop=stop, deadline=deadline):
            after = event.id if event is not None else after
            if event is None or event.kind == "event":
                yield None
            elif event.kind == "job":
                view = msgspec.json.decode(event.data, type=JobView)
                yield view
                if view.state.final:
                    return
        if (stop is not None and stop.is_set()) or (deadline is not None and time.monotonic() >= deadline):
            return


def fetch(connection: Connection, job_id: str) -> JobView:
    """The job as the server sees it now."""
    return msgspec.convert(connection.json("GET", f"jobs/{job_id}"), JobView)


class ProgressLine:
    """One line that follows a job, from `after` seconds on; where the output is no terminal, one per change.

    On stderr, which leaves stdout to answers; in a notebook on stdout, since stderr is red there as errors are.
    Silent when `EDT_NONINTERACTIVE` is set.
    """

    def __init__(self, stream: IO[str] | None = None, *, after: float = PROGRESS_AFTER) -> None:
        in_notebook = "ipykernel" in sys.modules
        self._stream = stream or (sys.stdout if in_notebook else sys.stderr)
        self._quiet = bool(os.environ.get(QUIET_VARIABLE))
        self._live = self._stream.isatty() or in_notebook
        self._from = time.monotonic() + after
        self._last = ""
        self._width = 0
        self._drawn = 0.0

    def show(self, view: JobView | None) -> None:
        """Draw `view` unless it says what is there already."""
        now = time.monotonic()
        if view is None or self._quiet or now < self._from:
            return
        # Only a live line can be drawn over; elsewhere each change of state or slots is one line.
        text = short_line(view)
        key = text if self._live else f"{view.state} {view.slots} {being_suspended(view)}"
        if key == self._last or (self._live and now - self._drawn < 0.5 and not view.state.final):
            return
        self._last, self._drawn = key, now
        if self._live:
            print(f"\r{text:<{self._width}}", end="", file=self._stream, flush=True)
            self._width = len(text)
        else:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """End the line, if one was drawn."""
        if self._live and self._width:
            print(file=self._stream, flush=True)


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """`work` in a thread of its own, from inside a running event loop; its Event is set when the task is cancelled.

    Not `asyncio.to_thread`: its threads are joined when Python ends, and a forgotten wait would keep the kernel alive.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    stop = threading.Event()

    def settle(value: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)  # type: ignore[arg-type]  # None only where T is None

    def run() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = work(stop)
        except BaseException as raised:  # handed to whoever awaits
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="edt-wait", daemon=True).start()
    try:
        return await outcome
    finally:
        stop.set()
