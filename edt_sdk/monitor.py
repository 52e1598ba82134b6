"""Watching jobs live: a widget in a notebook, a line in a terminal.

A widget only on request, because one whose kernel is gone shows nothing: when the job ends, and when the monitor is
closed, it is replaced by the static card. One daemon thread follows the events; it draws at most once a second and ends
with the job. Watching never touches a job, but for the button that says so.
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

from edt_sdk.card import done_share, facts_html, head_html, jobs_table, picture, sentence
from edt_sdk.connection import Connection
from edt_sdk.pictures import curve, image
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobView
from edt_sdk.waiting import ProgressLine, watch

REDRAW_EVERY = 1.0
POLL_EVERY = 2.0


def in_notebook() -> bool:
    """True in a kernel, where widgets can be shown."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Watched(Protocol):
    """What a monitor needs of a `Job`; the attributes are the job's."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def connection(self) -> Connection: ...  # noqa: D102
    @property
    def view(self) -> JobView: ...  # noqa: D102
    def saw(self, view: JobView) -> None: ...  # noqa: D102
    def losses(self) -> list[tuple[float, float]]: ...  # noqa: D102
    def bundle(self, trouble: str = "") -> dict[str, Any]: ...  # noqa: D102
    def stop(self) -> object: ...  # noqa: D102


class Listing(Protocol):
    """What a monitor needs of a `Client`."""

    @property
    def url(self) -> str: ...  # noqa: D102
    def jobs(self) -> Sequence[Watched]: ...  # noqa: D102


class Monitor(ABC):
    """What both monitors share: showing, one thread, ending."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        self._drawn = 0.0
        self._later: threading.Timer | None = None
        self._handle: Any = None
        self._shown_in: int | None = None

    def show(self) -> Monitor:
        """Start watching. In a notebook this returns at once, in a terminal when there is nothing left to watch."""
        if not in_notebook():
            self._in_terminal()
            return self
        self._handle = _display(self._build(), display_id=True)
        self._shown_in = _cell()
        self._thread = threading.Thread(target=self._run, name="edt-monitor", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop watching and leave a static picture; the jobs go on."""
        self._stop.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until watching has ended; False when it goes on after `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def _ipython_display_(self) -> None:
        """As the value of the cell that made it, it is on the screen already; in a later cell it shows the picture."""
        if self._shown_in != _cell():
            _display(self._snapshot(), raw=True)

    def _run(self) -> None:
        trouble = ""
        try:
            self._follow()
        except EdtError as refused:
            trouble = refused.message
        with self._lock:
            if self._later is not None:
                self._later.cancel()
            self._stop.set()
            # From here on the picture needs neither this kernel nor a widget.
            self._handle.update(self._snapshot(trouble), raw=True)

    def _changed(self) -> None:
        """Draw now, or when the second is over: never more often, and the last change is never left out."""
        with self._lock:
            wait = self._drawn + REDRAW_EVERY - time.monotonic()
            if wait <= 0:
                self._draw_now()
            elif self._later is None:
                self._later = threading.Timer(wait, self._draw_now)
                self._later.daemon = True
                self._later.start()

    def _draw_now(self) -> None:
        with self._lock:
            self._later = None
            if not self._stop.is_set():
                self._drawn = time.monotonic()
                self._draw()

    @abstractmethod
    def _build(self) -> Any:
        """The widget."""

    @abstractmethod
    def _draw(self) -> None:
        """Put the newest values into the widget."""

    @abstractmethod
    def _follow(self) -> None:
        """Watch until the end or `_stop`, calling `_changed`."""

    @abstractmethod
    def _snapshot(self, trouble: str = "") -> dict[str, Any]:
        """The static picture as a MIME bundle."""

    @abstractmethod
    def _in_terminal(self) -> None:
        """Watch as text, in the foreground."""


class JobMonitor(Monitor):
    """One job: progress, slots, the reason when it waits, figures, the loss curve, a button to stop it."""

    def __init__(self, job: Watched) -> None:
        super().__init__()
        self.job = job
        self._armed = 0.0

    def __repr__(self) -> str:
        return f"Monitor of job {self.job.id}"

    def _build(self) -> Any:
        import ipywidgets as widgets  # type: ignore[import-untyped]

        self._head = widgets.HTML()
        self._bar = widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="360px"))
        self._facts = widgets.HTML()
        self._curve = widgets.HTML()
        self._button = widgets.Button(
            description="Stop", icon="stop", tooltip="End this job; logs and checkpoints stay"
        )
        self._button.on_click(self._clicked)
        self._draw()
        return widgets.VBox([self._head, self._bar, self._facts, self._curve, self._button])

    def _draw(self) -> None:
        view = self.job.view
        self._head.value = head_html(view)
        self._bar.value = done_share(view)
        self._facts.value = f"{picture(view)}<br/>{facts_html(view)}"
        points = self.job.losses()
        self._curve.value = image(curve(points, width=360, height=80), "training loss by update")
        if self._armed and time.monotonic() - self._armed > 5:
            self._disarm()

    def _follow(self) -> None:
        for view in watch(self.job.connection, self.job.id, stop=self._stop):
            if view is not None:
                self.job.saw(view)
                self._changed()

    def _snapshot(self, trouble: str = "") -> dict[str, Any]:
        return self.job.bundle(trouble)

    def _in_terminal(self) -> None:
        line = ProgressLine(after=0.0)
        try:
            for view in watch(self.job.connection, self.job.id):
                if view is not None:
                    self.job.saw(view)
                    line.show(view)
        except KeyboardInterrupt:
            pass  # leaving the monitor is what Ctrl-C is for here; the job goes on
        finally:
            line.close()

    def _clicked(self, _: Any) -> None:
        """The first click asks, the second one within 5 s stops."""
        if not self._armed:
            self._armed = time.monotonic()
            done = self.job.view.progress
            at = f" at update {done.update} of {done.total_updates}" if done is not None else ""
            self._button.description, self._button.button_style = f"Really stop{at}?", "danger"
            self._button.layout.width = "auto"
            return
        self._disarm()
        try:
            self.job.stop()
        except EdtError as refused:
            self._button.description, self._button.tooltip = "Not stopped", str(refused)
            return
        self._button.disabled = True

    def _disarm(self) -> None:
        self._armed = 0.0
        self._button.description, self._button.button_style = "Stop", ""


class ClientMonitor(Monitor):
    """All jobs of a server in a table; ends when none is active."""

    def __init__(self, client: Listing) -> None:
        super().__init__()
        self.client = client
        self._views: list[JobView] = []

    def __repr__(self) -> str:
        return f"Monitor of the jobs at {self.client.url}"

    def _refresh(self) -> bool:
        """Fetch all jobs; True while one is active."""
        self._views = [job.view for job in self.client.jobs()]
        return any(not view.state.final for view in self._views)

    def _build(self) -> Any:
        import ipywidgets as widgets

        self._refresh()
        self._table = widgets.HTML()
        self._draw()
        return self._table

    def _draw(self) -> None:
        self._table.value = jobs_table(self._views)

    def _follow(self) -> None:
        while self._refresh() and not self._stop.is_set():
            self._changed()
            self._stop.wait(POLL_EVERY)

    def _snapshot(self, trouble: str = "") -> dict[str, Any]:
        said = f"<p>{escape(trouble)}</p>" if trouble else ""
        text = "\n".join(map(sentence, self._views)) or "No jobs."
        return {"text/html": jobs_table(self._views) + said, "text/plain": text}

    def _in_terminal(self) -> None:
        last = ""
        try:
            while self._refresh():
                text = "\n".join(sentence(view) for view in self._views if not view.state.final)
                if text != last:
                    print(text, file=sys.stderr, flush=True)
                last = text
                time.sleep(POLL_EVERY)
        except KeyboardInterrupt:
            pass  # the jobs go on
        print("No job is active.", file=sys.stderr)


def _display(value: Any, **settings: Any) -> Any:
    """IPython's `display`, which is untyped and not loaded outside of notebooks."""
    from IPython import display

    show: Any = display.display
    return show(value, **settings)


def _cell() -> int | None:
    """Number of the cell that is being executed."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return getattr(shell, "execution_count", None)
