"""Wait for a training in a notebook's cell: a line with the job's state and, below it, the live figure.

Both are displayed once and then replaced in place. The last ones stay as the cell's output, without widgets. Two daemon
threads read the job's events and its metrics. The cell's own thread draws, so that Ctrl-C reaches it and the pictures
belong to this cell. Waiting never touches the job.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec

from edt_sdk.display.card import state_html, why_words
from edt_sdk.formatting.tables import GREY
from edt_sdk.http.following import follow
from edt_sdk.notebook import live_figure
from edt_sdk.notebook.curves import Curves
from edt_sdk.schemas.errors import EdtError, NotAllowed, ServerUnreachable
from edt_sdk.schemas.job import JobState, JobView
from edt_sdk.waiting.waiting import StoppedWaiting, away_words, sight_lost, watch

if TYPE_CHECKING:
    from edt_sdk.client import Job


@dataclass(frozen=True, slots=True)
class _Reach:
    """Whether the server answers: why not, None when it does."""

    lost: ServerUnreachable | None


_News = JobView | dict[str, Any] | BaseException | _Reach

# Draw at most once a second. Fewer than 50 new steps wait until the figure is two seconds old, unless a validation, the
# number of workers or the state is new too.
REDRAW_EVERY = 1.0
REDRAW_STEPS = 50
SMOOTH_AFTER = 2.0
# Drawing takes about a tenth of a core at most: on a small machine the job computes on the same ones.
_DRAWING_SHARE = 0.1
_LONGEST_PAUSE = 5.0
# How long the last points are waited for behind the end of the job.
_LAST_POINTS = 10.0


def wait(job: Job) -> Job:
    """Wait for the end of `job` and show how it trains. Raises as `Job.wait`, and StoppedWaiting at Ctrl-C."""
    stop = threading.Event()
    cell = _Cell(job)
    try:
        cell.follow(stop)
    except KeyboardInterrupt:
        cell.show_line("as last seen when this cell stopped waiting.")
        raise StoppedWaiting(
            f"Stopped waiting. Job {job.id} ({job.name}) goes on. With the FabricModel as `fabric`: "
            "fabric.job.stop() ends it, fabric.job.wait() waits again, and once it has finished "
            f'fabric.job.load_into(model) brings the weights. In another kernel: edt_sdk.Client().job("{job.id}").'
        ) from None
    except (ServerUnreachable, NotAllowed) as lost:
        raise sight_lost(lost, job.id) from None
    finally:
        # The threads are daemons, but the kernel outlives the cell: without this they would poll for ever.
        stop.set()
    # The job has ended by now, so that this returns at once, or raises JobFailed.
    return job.wait(progress=False)


def state_line(view: JobView, workers: int, remark: str = "") -> tuple[str, str]:
    """Return the line above the figure as HTML and as text. `remark` replaces what explains the job's state."""
    words = [view.state.shown]
    if view.state is JobState.RUNNING and workers:
        words.append(f"on {workers} worker{'' if workers == 1 else 's'}")
    # Ids are made of names where they can be.
    facts = [view.id if view.name in view.id else f"{view.name} · {view.id}", *_progress(view)]
    why = "" if view.state is JobState.RUNNING and view.slots else why_words(view)
    if view.state is JobState.SUSPENDED:
        why = why or "job.resume() lets it go on."
    why = remark or why
    rest = " · ".join(filter(None, facts))
    text = f"{' '.join(words)} · {rest}" + (f" — {why}" if why else "")
    html = f"{state_html(view)} {escape(' '.join(words[1:]))} · {escape(rest)}"
    html += f'<br/><span style="color: {GREY}">{escape(why)}</span>' if why else ""
    return f"<div>{html}</div>", text


def _progress(view: JobView) -> list[str]:
    """Return the parts of the progress that the figure does not show."""
    p = view.progress
    if p is None or not p.total_updates:
        return []
    words = [f"update {p.update:,} of {p.total_updates:,}", f"epoch {min(p.epoch + 1, p.epochs)} of {p.epochs}"]
    return words if p.test_accuracy is None else [*words, f"test accuracy {100 * p.test_accuracy:.1f} %"]


def due(since: float, cost: float, steps: int, *, other: bool) -> bool:
    """Return whether to draw the figure again, `since` seconds after a drawing of `cost` seconds.

    `other` is True when a validation, the number of workers or the state is new too.
    """
    if since < max(REDRAW_EVERY, min(cost / _DRAWING_SHARE, _LONGEST_PAUSE)):
        return False
    return other or steps >= REDRAW_STEPS or (steps > 0 and since >= SMOOTH_AFTER)


class _Cell:
    """The output of a cell, and the state it was last drawn from."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._curves = Curves()
        self._line = Shown()
        self._figure = Shown()
        self._drawn = (0, 0, 0)
        self._drawn_at = float("-inf")
        self._cost = 0.0
        self._told, self._told_at = job.view.state, float("-inf")
        self._away = ""

    def follow(self, stop: threading.Event) -> None:
        """Show the job until it has ended."""
        news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        job, connection = self._job, self._job.connection

        def views() -> None:
            try:
                for view in watch(connection, job.id, stop=stop, away=lambda lost: news.put(_Reach(lost))):
                    if view is not None:
                        news.put(view)
            except BaseException as raised:  # the waiting thread raises it
                news.put(raised)

        def points() -> None:
            # Without metrics there is no figure. When the server is gone, the thread of the views reports it.
            with suppress(EdtError):
                for event in follow(connection, f"jobs/{job.id}/metrics", stop=stop):
                    if event is not None and event.kind == "metric":
                        news.put(msgspec.json.decode(event.data, type=dict[str, Any]))

        threads = [threading.Thread(target=work, name="edt-cell", daemon=True) for work in (views, points)]
        for thread in threads:
            thread.start()
        self.show_line()
        while not job.view.state.final:
            # A timeout, because a figure can become due without news.
            self._take(news, REDRAW_EVERY / 2)
            self._draw_if_due()
        until = time.monotonic() + _LAST_POINTS
        # A race at the end: the state arrives over another stream than the last points.
        while threads[-1].is_alive() and time.monotonic() < until:
            self._take(news, 0.1)
        while not news.empty():
            self._take(news, 0.0)
        self.show_line()
        self._draw()

    def _take(self, news: queue.SimpleQueue[_News], seconds: float) -> None:
        """Wait for news at most so long, then take all there are."""
        try:
            found = news.get(timeout=seconds) if seconds else news.get_nowait()
            while True:
                if isinstance(found, BaseException):
                    # Raised here, in the thread of the cell, because an error in a reading thread would reach no
                    # reader.
                    raise found
                if isinstance(found, _Reach):
                    self._reach(found.lost)
                elif isinstance(found, JobView):
                    self._job.saw(found)
                else:
                    self._curves.add(found)
                found = news.get_nowait()
        except queue.Empty:
            return

    def _reach(self, lost: ServerUnreachable | None) -> None:
        """Show that the server does not answer, and since when, or that it answers again."""
        if (lost is None) == (not self._away):
            return
        self._away = "" if lost is None else away_words(lost, self._job.taken)
        self.show_line()

    def show_line(self, remark: str = "") -> None:
        """Show the job as last seen."""
        self._told, self._told_at = self._job.view.state, time.monotonic()
        html, text = state_line(self._job.view, self._curves.workers, remark or self._away)
        self._line.show({"text/html": html, "text/plain": text})

    def _draw_if_due(self) -> None:
        now = time.monotonic()
        if self._job.view.state is not self._told or now - self._told_at >= REDRAW_EVERY:
            self.show_line()
        steps, tests, workers = self._drawn
        other = (len(self._curves.test), self._curves.workers) != (tests, workers)
        # Lost updates and a new training make the number of steps smaller, which needs a new figure too.
        if due(now - self._drawn_at, self._cost, abs(self._curves.steps - steps), other=other):
            self._draw()

    def _draw(self) -> None:
        if not self._curves.steps:
            return
        first = self._drawn_at < 0
        began = time.monotonic()
        self._figure.show(*live_figure.bundle(self._curves))
        self._drawn = (self._curves.steps, len(self._curves.test), self._curves.workers)
        self._drawn_at = time.monotonic()
        # The first drawing also imports matplotlib. Its time would delay the second figure for nothing.
        self._cost = 0.0 if first else self._drawn_at - began


class Shown:
    """One output of the cell, replaced in place."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last: dict[str, Any] = {}

    def show(self, bundle: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Show `bundle`, unless it is there already."""
        # Each update is a message to every page that shows the notebook, also when nothing has changed.
        if bundle == self._last:
            return
        self._last = bundle
        if self._handle is None:
            from IPython import display  # untyped, and not loaded outside of notebooks

            show: Any = display.display
            self._handle = show(bundle, raw=True, metadata=metadata, display_id=True)
        else:
            self._handle.update(bundle, raw=True, metadata=metadata)
