"""Provide the base of all monitors: a widget in a cell, a thread that waits for the end, then a static picture.

The front end draws what is live and asks the server itself where it can. The kernel looks at the server now and then,
because a notebook has to keep a picture also when no browser is open: without its kernel a widget shows nothing. A
monitor replaces itself by static HTML when there is nothing left to watch, when it is closed, when the kernel is
interrupted, and when the server stays away.

Invariant: a monitor that no page shows any more sends no request. Pages renew a lease, see `LEASE`. A notebook without
a browser never takes one, and is watched to the end.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from typing import Any

from edt_sdk.display.picture import fetch_picture
from edt_sdk.formatting.front_end import in_notebook
from edt_sdk.http.connection import Connection, watching
from edt_sdk.monitor.kernel import Output, Signs, display, make_widget, running_cell
from edt_sdk.monitor.relay import WidgetRelay
from edt_sdk.schemas.errors import EdtError, NotAllowed, NotFound

_log = logging.getLogger("edt_sdk.monitor")
Bundle = dict[str, Any]
Section = tuple[str, str]

# Seconds between two requests of a monitor. With many monitors each sends fewer.
EVERY = 3.0
_EACH = 0.5
# The seconds of a page's lease on the widget. The page renews it three times as often.
LEASE = 30.0
# Seconds after which a cell counts as one next to which a person watches, such as `job.wait()`.
_BUSY = 3.0
# Seconds without an answer after which a monitor gives up: as long as the server's machine may take to restart.
PATIENCE = 600.0
_LONGEST_PAUSE = 15.0
_OPEN: weakref.WeakSet[Monitor] = weakref.WeakSet()


class Monitor(ABC):
    """A monitor of a job, or of a whole server. It opens a connection of its own to the same server.

    Attributes:
        trouble: why the last look failed, "" when it succeeded.
        cell: id and number of the cell that shows it.
    """

    # The job that the widget shows, "" for the whole server.
    shows = ""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.trouble = ""
        self.cell = ("", -1)
        # A SimpleQueue, because a signal handler may put into it while the same thread holds its lock.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._closing: str | None = None
        self._output: Output | None = None
        self._widget: Any = None
        self._left: Bundle | None = None
        self._failures = 0
        self._answered = time.monotonic()
        self._lease: float | None = None

    # --- what a person does with it -----------------------------------------------------------------------------------

    def show(self) -> Monitor:
        """Start watching.

        In a notebook this returns at once. In a terminal it returns when there is nothing left to watch.
        """
        if not in_notebook():
            self._in_terminal()
            self._ended.set()
            return self
        self.cell = running_cell()
        # Connections of their own: two threads must not share one. They do not retry, because `_wait` has its own
        # back-off.
        self.connection = watching(self.connection)
        # Nothing will ever change. A widget would only go blank with its kernel.
        if self._for_good():
            self._end()
            display(self._left, raw=True)
            return self
        self._widget = make_widget(job=self.shows, origin=self.connection.url)
        self._relay = WidgetRelay(self._widget, watching(self.connection))
        self._widget.on_msg(self._received)
        self._output = Output(self._widget, self._beside())
        SIGNS.listen()
        _OPEN.add(self)
        # The thread starts last, because its first turn may already replace the output.
        threading.Thread(target=self._run, name="edt-monitor", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop watching and leave a static picture. The jobs go on."""
        self._end_soon("")

    def join(self, timeout: float | None = None) -> bool:
        """Wait until watching has ended. Returns False when it goes on after `timeout` seconds."""
        return self._ended.wait(timeout)

    def interrupted(self) -> None:
        """Stop watching because the kernel was interrupted."""
        self._end_soon("Stopped watching when the kernel was interrupted; what was watched goes on.")

    def cell_runs_again(self) -> None:
        """Stop watching without a static picture, because the output is about to be cleared."""
        # Before the note for the thread: it must not write a picture into the output of the cell's new run.
        self._output = None
        self._end_soon("")

    @property
    def over(self) -> bool:
        """Watching has ended."""
        return self._ended.is_set()

    def _ipython_display_(self) -> None:
        """Show nothing in the cell that made the monitor, since it is there, and the static picture in later cells."""
        if not in_notebook() or self.cell[1] == running_cell()[1]:
            return
        if self._left is not None:
            display(self._left, raw=True)
        else:
            display(f"{self!r}, which goes on above. monitor.close() ends it.")

    # --- its thread ---------------------------------------------------------------------------------------------------

    @property
    def watched(self) -> bool:
        """A page shows the widget, or no page ever did."""
        if self._lease is None:
            return True
        # While a cell runs the kernel reads no message, so nothing can renew the lease. What counts is whether it was
        # valid when the cell began.
        return time.monotonic() - SIGNS.busy_for() < self._lease

    def _received(self, _widget: Any, message: Any, _buffers: Any) -> None:
        """Take a message of a page, in the kernel's main thread."""
        kind = message.get("kind")
        if kind in ("seen", "gone"):
            # A page that goes sets the lease to 0. None would mean that no page was ever there, as in a notebook
            # without browser.
            before, self._lease = self.watched, time.monotonic() + LEASE if kind == "seen" else 0.0
            # Only a change wakes the thread. Otherwise each renewal of the lease would cause a request to the server.
            if self.watched is not before:
                self._wakes.put(None)
        else:
            self._relay.receive(message)

    def _run(self) -> None:
        self.turn()
        while not self.over:
            self._wait()
            self.turn()

    def turn(self) -> None:
        """Look once, or end when that was asked for."""
        try:
            self._look_or_end()
            self._failures, self._answered, self.trouble = 0, time.monotonic(), ""
        except EdtError as error:
            self._bear(error)
        except Exception as error:  # a thread that dies silently would leave a dead widget
            _log.exception("the monitor failed: %r", self)
            self._end(f"This monitor failed: {type(error).__name__}: {error}. What was watched goes on.")

    def _look_or_end(self) -> None:
        if self._closing is not None:
            self._end(self._closing)
        elif self.watched:
            self._look()
            if SIGNS.busy_for() > _BUSY and not self.over:
                self._relay.repeat()

    def _wait(self) -> None:
        """Wait for the next look, or for a message while no page shows the widget."""
        # Without a page the thread sleeps without a timeout, until a page renews the lease or the monitor is closed.
        pause = max(EVERY, _EACH * len(_OPEN)) if self.watched else None
        if self._failures:
            # Exponential back-off: a server that restarts gets few requests, also from many monitors.
            pause = min(_LONGEST_PAUSE, 2.0 ** min(self._failures - 1, 10))
        with suppress(queue.Empty):
            self._wakes.get(timeout=pause)

    def _bear(self, error: EdtError) -> None:
        """Retry later when the server is away, and end when it has refused."""
        self.trouble = f"{error.message} {error.hint}".strip()
        self._failures += 1
        if isinstance(error, NotFound | NotAllowed):
            self._end(self.trouble)
        # A deadline since the last answer and not a number of retries, because the back-off makes these unequally long.
        elif self._closing is not None or time.monotonic() - self._answered > PATIENCE:
            self._end(f"{self.trouble} Run this cell again to watch on.")

    # --- its end ------------------------------------------------------------------------------------------------------

    def _end_soon(self, why: str) -> None:
        """End in the monitor's thread. Signal handlers call this too, so it only leaves a note."""
        if not self.over:
            # A signal handler may run while the same thread holds any lock: it sets a flag and wakes the thread, and no
            # more.
            self._closing = why
            self._wakes.put(None)

    def _end(self, trouble: str = "") -> None:
        """Leave the static picture in the output."""
        self._left = self._snapshot(trouble)
        # First, so that neither an interrupt nor a new run of the cell reaches a monitor that is ending.
        _OPEN.discard(self)
        try:
            if self._output is not None:
                self._output.replace(self._left)
            if self._widget is not None:
                self._relay.close()
                self._widget.close()
            self.connection.close()
        finally:
            # After the output was replaced, so that `join()` in the last cell of a notebook finds it there.
            self._ended.set()

    @abstractmethod
    def _beside(self) -> Bundle:
        """Return what is shown where there are no widgets, as a MIME bundle. It sends no request."""

    @abstractmethod
    def _look(self) -> None:
        """Ask the server, and call `_end` when there is nothing left to watch."""

    def _for_good(self) -> bool:
        """Return True when there is nothing to watch and never will be."""
        return False

    @abstractmethod
    def _snapshot(self, trouble: str) -> Bundle:
        """Return the static picture as a MIME bundle. It never raises EdtError."""

    @abstractmethod
    def _in_terminal(self) -> None:
        """Watch as text, in the foreground."""


def snapshot(head: str, sections: Sequence[Section], trouble: str = "") -> str:
    """Return the static picture as HTML that untrusted notebooks show too: `head`, `trouble`, and the sections.

    A section is a title and HTML. All but the first are folded, and a section without HTML is left out.
    """
    parts = [head]
    if trouble:
        parts.append(f"<p>⚠ {escape(trouble)}</p>")
    opened = " open"
    for title, body in sections:
        if body:
            parts.append(f"<details{opened}><summary><b>{escape(title)}</b></summary>{body}</details>")
            opened = ""
    # Line breaks, so that the parts stay apart where a front end shows the text without its tags.
    return "<div>" + "\n".join(parts) + "</div>"


def drawn(connection: Connection, path: str, **params: str | int | float | None) -> str:
    """Return the server's picture at `path` as HTML."""
    return fetch_picture(connection, path, params)._repr_html_()


def _cell_began(cell: str) -> None:
    for monitor in list(_OPEN):
        if monitor.cell[0] == cell:
            monitor.cell_runs_again()


def _interrupted() -> None:
    for monitor in list(_OPEN):
        monitor.interrupted()


SIGNS = Signs(_cell_began, _interrupted)
