"""What all monitors share: shown once, turns in the one thread, an end that leaves something that lasts.

A widget whose kernel is gone shows nothing at all. So a monitor replaces itself, in its own output, by HTML that needs
neither kernel nor widget: when there is nothing left to watch, when it is closed, when the kernel is interrupted, when
the server stays away. While no front end shows it any more, it asks for nothing and waits to be shown again; when its
cell is run again, it ends. Watching never touches a job, but for the controls that say so.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from html import escape
from typing import Any

from edt_sdk.formatting.html_table import GREY
from edt_sdk.formatting.number_words import clock, zone
from edt_sdk.formatting.surroundings import in_notebook
from edt_sdk.http.connection import Connection, watching
from edt_sdk.monitor.counted import counted
from edt_sdk.monitor.kernel import Output, Signs, display, running_cell, toolkit
from edt_sdk.monitor.page import Wish
from edt_sdk.monitor.patience import Silence
from edt_sdk.monitor.rounds import ROUNDS
from edt_sdk.schemas.errors import EdtError, NotAllowed, NotFound, ServerUnreachable

_log = logging.getLogger("edt_sdk.monitor")
Bundle = dict[str, Any]


class Monitor(ABC):
    """One thing that is watched.

    Args:
        connection: whose server it is; the monitor has a connection of its own.

    Attributes:
        due: when its next turn is, see `rounds.py`.
    """

    def __init__(self, connection: Connection) -> None:
        self.due = 0.0
        self.connection = connection
        self._wishes: deque[Wish] = deque()
        self._ended = threading.Event()
        self._closing: str | None = None
        self._silence: Silence | None = None
        self._output: Output | None = None
        self._box: Any = None
        self._left: Bundle | None = None
        self.cell = ("", -1)

    # --- what a person does with it -----------------------------------------------------------------------------------

    def show(self) -> Monitor:
        """Start watching. In a notebook this returns at once, in a terminal when there is nothing left to watch."""
        if not in_notebook():
            self._in_terminal()
            self._ended.set()
            return self
        widgets = toolkit()

        self.cell = running_cell()
        # In threads and over sockets of its own, and not for longer than somebody looks at a picture.
        self.connection = watching(self.connection)
        self._trouble = widgets.HTML()
        self._box = counted([*self._build(), self._trouble], self._shown)
        if self._for_good():
            self._end()
            display(self._left, raw=True)
            return self
        self._output = Output(self._box, self._beside())
        SIGNS.listen()
        ROUNDS.add(self)
        return self

    def close(self) -> None:
        """Stop watching and leave a picture that lasts; the jobs go on."""
        self._end_soon("")

    def join(self, timeout: float | None = None) -> bool:
        """Wait until watching has ended; False when it goes on after `timeout` seconds."""
        return self._ended.wait(timeout)

    def interrupted(self) -> None:
        """The kernel was interrupted: stop watching, and say so."""
        self._end_soon("Stopped watching when the kernel was interrupted; what was watched goes on.")

    def cell_runs_again(self) -> None:
        """Its output is about to be cleared: nothing has to be left in it."""
        self._output = None
        self._end_soon("")

    @property
    def over(self) -> bool:
        """Watching has ended."""
        return self._ended.is_set()

    def _ipython_display_(self) -> None:
        """As the value of the cell that made it, it is on the screen already; in a later cell it shows what is left."""
        if not in_notebook() or self.cell[1] == running_cell()[1]:
            return
        if self._left is not None:
            display(self._left, raw=True)
        else:
            display(f"{self!r}, which goes on above. monitor.close() ends it.")

    # --- its turns ----------------------------------------------------------------------------------------------------

    def ask(self, wish: Wish) -> None:
        """Have this done by the monitors' thread, at once."""
        self._wishes.append(wish)
        ROUNDS.wake(self)

    def turn(self) -> None:
        """Do what was asked for, then look."""
        try:
            self._turn()
            self._silence = None
            if not self.over:
                self._trouble.value = ""
                ROUNDS.settle(self, self._next)
        except EdtError as error:
            self._bear(error)
        except Exception as error:  # the thread is everybody's
            _log.exception("the monitor failed: %r", self)
            self._end(f"This monitor failed: {type(error).__name__}: {error}. What was watched goes on.")

    def _turn(self) -> None:
        while self._wishes:
            self._wishes.popleft()()
        if self._closing is not None:
            self._end(self._closing)
        elif self._looked_at:
            self._look()

    def _next(self) -> float:
        """A wish that came meanwhile has to be seen; a monitor that nobody looks at sleeps."""
        if self._wishes or self._closing is not None:
            return 0.0
        return time.monotonic() + ROUNDS.interval() if self._looked_at else float("inf")

    @property
    def _looked_at(self) -> bool:
        """False once every front end that showed it has stopped to."""
        return not self._gone

    _gone = False

    def _shown(self, change: Any) -> None:
        # Below 0 where a page closes a view that was opened before another page came, see `counted`.
        self._gone = change["new"] <= 0
        ROUNDS.wake(self)

    def _bear(self, error: EdtError) -> None:
        """Try again when the server is away; end when it has nothing to tell any more."""
        now = time.monotonic()
        if isinstance(error, NotFound | NotAllowed):
            self._end(f"{error.message} {error.hint}".strip())
            return
        self._silence = Silence(now) if self._silence is None else self._silence.again()
        if self._closing is not None or self._silence.over(now):
            self._end(f"{error.message} {error.hint} Run this cell again to watch on.".replace("  ", " "))
            return
        again = now + self._silence.pause
        ROUNDS.settle(self, lambda: 0.0 if self._wishes or self._closing is not None else again)
        since = clock(time.time() - (now - self._silence.since))
        away = isinstance(error, ServerUnreachable)
        said = "Jobs do not need it in order to go on; this monitor tries again." if away else "It tries again."
        self._trouble.value = (
            f'<span style="color: {GREY}">⚠ Not renewed since {since} {zone()}. {escape(error.message)} {said}</span>'
        )

    # --- its end ------------------------------------------------------------------------------------------------------

    def _end_soon(self, said: str) -> None:
        """End in the monitors' thread. Also called where a signal is handled: it only leaves a note."""
        if not self.over:
            self._closing = said
            ROUNDS.wake(self)

    def _end(self, trouble: str = "") -> None:
        """Leave what lasts, in the output and, for whoever shows the widget a second time, in the widget."""
        widgets = toolkit()

        self._left = self._snapshot(trouble)
        try:
            if self._output is not None:
                self._output.replace(self._left)
            used = [*self._box.children]
            self._box.children = [widgets.HTML(self._left["text/html"])]
            for widget in used:
                for each in _family(widget):
                    each.close()
            self.connection.close()
        finally:
            # Not before: whoever waits for this, as the last cell of a notebook does, finds it in its place.
            self._ended.set()

    @abstractmethod
    def _beside(self) -> Bundle:
        """What is shown in place of the widgets where they cannot be, as a MIME bundle; asks nobody."""

    @abstractmethod
    def _build(self) -> list[Any]:
        """The widgets, one below the other."""

    @abstractmethod
    def _look(self) -> None:
        """Ask the server and show what it says; `_end` when there is nothing left to watch."""

    def _for_good(self) -> bool:
        """Whether there is nothing to watch, and never will be."""
        return False

    @abstractmethod
    def _snapshot(self, trouble: str) -> Bundle:
        """What lasts, as a MIME bundle; never raises EdtError."""

    @abstractmethod
    def _in_terminal(self) -> None:
        """Watch as text, in the foreground."""


def _family(widget: Any) -> Iterator[Any]:
    for child in getattr(widget, "children", ()):
        yield from _family(child)
    yield widget


def _open_monitors() -> list[Monitor]:
    return [watcher for watcher in ROUNDS.watchers() if isinstance(watcher, Monitor)]


def _cell_began(cell: str) -> None:
    for monitor in _open_monitors():
        if monitor.cell[0] == cell:
            monitor.cell_runs_again()


def _interrupted() -> None:
    for monitor in _open_monitors():
        monitor.interrupted()


SIGNS = Signs(_cell_began, _interrupted)
