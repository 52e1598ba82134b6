"""Wait for a job: one thread reads its events, whatever happens to the connection in between.

`watch` is the only loop over a job's events in the SDK. `Job.wait`, `await job`, the monitor and the command line use
it. Ending a wait never touches the job.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from edt_sdk.display.card import being_suspended, short_line
from edt_sdk.formatting.front_end import in_notebook
from edt_sdk.formatting.number_words import clock, zone
from edt_sdk.http.connection import Connection
from edt_sdk.http.following import PATIENCE, UNNOTICED, Pause, follow, over
from edt_sdk.packing.upload import PROGRESS_AFTER, QUIET_VARIABLE
from edt_sdk.schemas.errors import BY_CODE, EdtError, JobFailed, NotAllowed, ServerUnreachable, WaitTimeout
from edt_sdk.schemas.job import JobState, JobView

T = TypeVar("T")


class StoppedWaiting(KeyboardInterrupt):
    """Ctrl-C ended the waiting, not the job. In a cell one paragraph is shown for it, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def watch(
    connection: Connection,
    job_id: str,
    *,
    stop: threading.Event | None = None,
    deadline: float | None = None,
    away: Callable[[ServerUnreachable | None], None] = lambda lost: None,
) -> Iterator[JobView | None]:
    """Yield the job now and after every change, until it has ended, and None for each sign of life in between.

    Ends early and silently when `stop` is set or `time.monotonic()` passes `deadline`. `away` is called with the error
    when the server stops answering, and with None when it answers again.

    Raises:
        NotFound: there is no such job (any more).
        ServerUnreachable: no connection for two minutes.
    """
    after = ""
    while True:
        # First an explicit view: the event stream reports changes only, and the job may have ended long ago.
        view = patiently(lambda: fetch(connection, job_id), stop, deadline, away)
        yield view
        if view.state.final:
            return
        path = f"jobs/{job_id}/events"
        for event in follow(connection, path, after=after, stop=stop, deadline=deadline, away=away):
            # Kept from stream to stream, so that a new stream resumes after the last event.
            after = event.id if event is not None else after
            if event is None or event.kind == "event":
                yield None
            elif event.kind == "job":
                view = msgspec.json.decode(event.data, type=JobView)
                yield view
                if view.state.final:
                    return
        if over(stop, deadline):
            return


def wait_for(
    connection: Connection,
    job_id: str,
    saw: Callable[[JobView], None],
    *,
    timeout: float | None,
    progress: bool,
    stop: threading.Event | None = None,
) -> None:
    """Hand each view of the job to `saw` until it has ended, `timeout` seconds are over or `stop` is set.

    Raises:
        ServerUnreachable, NotAllowed: with the words for a waiting user.
    """
    # Monotonic, because a wall clock that is set would move the deadline.
    deadline = None if timeout is None else time.monotonic() + max(0.0, timeout)
    # The error that the caller raises has the reason of a failure.
    line = ProgressLine(ended_why=False) if progress else None
    away = line.away if line is not None else lambda lost: None
    try:
        # None is a sign of life between two changes. `watch` retries a lost connection by itself.
        for view in watch(connection, job_id, stop=stop, deadline=deadline, away=away):
            if view is not None:
                saw(view)
            if line is not None:
                line.show(view)
    except KeyboardInterrupt:
        raise StoppedWaiting(
            f"Stopped waiting. Job {job_id} goes on; wait again with job.wait(), end it with job.stop(), "
            f"or at a shell: edt wait {job_id}, edt stop {job_id}"
        ) from None
    except (ServerUnreachable, NotAllowed) as lost:
        raise sight_lost(lost, job_id) from None
    finally:
        if line is not None:
            line.close()


def raise_unless_finished(view: JobView, timeout: float | None) -> None:
    """Raise WaitTimeout for a job that has not ended after `timeout` seconds, and JobFailed for one that failed."""
    if not view.state.final:
        hint = f"It goes on; wait again, or end it: job.stop(), or at a shell: edt stop {view.id}"
        if view.state is JobState.SUSPENDED:
            resume = f"job.resume() lets it go on, or at a shell: edt resume {view.id}"
            # A trial that holds is not the user's to resume.
            hint = view.reason.text if view.reason is not None and view.reason.numbers else resume
        raise WaitTimeout(
            f"Job {view.id} is still {view.state.shown} after {timeout or 0:g} s.",
            hint=hint,
            job=view.id,
            state=view.state.value,
        )
    if view.state is not JobState.FINISHED:
        raise JobFailed(
            f"Job {view.id} ({view.name}) ended as {view.state.shown}: "
            f"{_said_once(view.message.strip()) or 'no message'}\n"
            f"Every line it wrote: job.logs(), or at a shell: edt logs {view.id}",
            job=view.id,
            state=view.state.value,
        )


def _said_once(message: str) -> str:
    """Return the message without the last line of its traceback, where its first line has that already."""
    first, *rest = message.splitlines() or [""]
    last = rest[-1].strip() if rest else ""
    name, _, text = last.partition(": ")
    ours = name == "edt" or any(name == each.__name__ for each in BY_CODE.values())
    if last and (text if ours else last) in first:
        rest.pop()
    if len(rest) == 1 and rest[0].startswith("Last lines of "):
        rest = []
    return "\n".join([first, *rest])


def away_words(lost: ServerUnreachable, since: float) -> str:
    """Return the line shown while the server does not answer. `since` is in seconds since the epoch."""
    return (
        f"Not renewed since {clock(since)} {zone()}. {lost.message} The job does not need it in order to go on; "
        "it is asked again for two minutes."
    )


def patiently(
    fetch: Callable[[], T],
    stop: threading.Event | None,
    deadline: float | None,
    away: Callable[[ServerUnreachable | None], None] = lambda lost: None,
) -> T:
    """Call `fetch` with the same retries as the event stream, because a wait may start during an outage."""
    pause = Pause(PATIENCE)
    while True:
        try:
            found = fetch()
        except ServerUnreachable as lost:
            if over(stop, deadline):
                raise
            if pause.lasting > UNNOTICED:
                away(lost)
            pause.failure(lost, stop, deadline)
        else:
            if pause.lasting > UNNOTICED:
                away(None)
            return found


def sight_lost(error: EdtError, job_id: str) -> EdtError:
    """Return the same error for a waiting user: what becomes of the job, and how to resume the wait."""
    if isinstance(error, ServerUnreachable):
        hint = f"Job {job_id} does not need the server in order to go on. {error.hint}"
        return ServerUnreachable(error.message, hint=hint.strip(), job=job_id)
    if isinstance(error, NotAllowed):
        hint = f'{error.hint} Job {job_id} goes on: wait for it again with Client().job("{job_id}").wait().'
        return NotAllowed(error.message, hint=hint.strip(), job=job_id)
    return error


def fetch(connection: Connection, job_id: str) -> JobView:
    """Return the job as the server sees it now."""
    return msgspec.convert(connection.json("GET", f"jobs/{job_id}"), JobView)


class ProgressLine:
    """Follows a job in one line, from `after` seconds on. `ended_why` is whether the line gives the reason of its end.

    Where the output is no terminal, each change is a new line.

    It writes to stderr, which keeps stdout for answers. In a notebook it writes to stdout, because stderr is red there,
    as errors are. It writes nothing when `EDT_NONINTERACTIVE` is set.
    """

    def __init__(self, *, after: float = PROGRESS_AFTER, ended_why: bool = True) -> None:
        self._ended_why = ended_why
        notebook = in_notebook()
        self._stream = sys.stdout if notebook else sys.stderr
        self._quiet = bool(os.environ.get(QUIET_VARIABLE))
        self._live = self._stream.isatty() or notebook
        self._from = time.monotonic() + after
        self._last = ""
        self._width = 0
        self._drawn = 0.0
        self._away: ServerUnreachable | None = None

    def show(self, view: JobView | None) -> None:
        """Draw `view` unless the line would not change."""
        now = time.monotonic()
        if view is None or self._quiet or now < self._from:
            return
        # Only a live line can be overwritten. Elsewhere each change of state or slots is one line.
        text = short_line(view, ended_why=self._ended_why)
        key = text if self._live else f"{view.state} {view.slots} {being_suspended(view)}"
        if key == self._last or (self._live and now - self._drawn < 0.5 and not view.state.final):
            return
        self._last, self._drawn = key, now
        if self._live:
            # Padded, so that a shorter text covers the previous one.
            print(f"\r{text:<{self._width}}", end="", file=self._stream, flush=True)
            self._width = len(text)
        else:
            print(text, file=self._stream, flush=True)

    def away(self, lost: ServerUnreachable | None) -> None:
        """Print once that the server does not answer, and once that it answers again."""
        if self._quiet or (lost is None) == (self._away is None):
            return
        self._away = lost
        self.close()
        self._last, self._width = "", 0
        said = "The server answers again." if lost is None else away_words(lost, time.time())
        print(said, file=self._stream, flush=True)

    def close(self) -> None:
        """End the line, if one was drawn."""
        if self._live and self._width:
            print(file=self._stream, flush=True)


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """Run `work` in a thread of its own, from inside a running event loop.

    Its Event is set when the task is cancelled.

    Not `asyncio.to_thread`: its threads are joined when Python ends, and a forgotten wait would keep the kernel alive.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    stop = threading.Event()

    def settle(value: T | None, error: BaseException | None) -> None:
        # The task was cancelled while the thread finished.
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
        except BaseException as raised:  # the awaiting task raises it
            error = raised
        # Nothing joins this thread, so it may outlive the loop.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="edt-wait", daemon=True).start()
    try:
        return await outcome
    finally:
        # A cancelled task has only stopped awaiting. The thread ends by this event.
        stop.set()
