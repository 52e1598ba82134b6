"""One tab of a monitor: a widget, and what it asks of the server while somebody looks at it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from edt_sdk.http.connection import Connection
from edt_sdk.schemas.job import JobView
from edt_sdk.waiting.watched import Watched

# Somebody's wish, carried out by the monitors' thread at once.
Wish = Callable[[], None]
Ask = Callable[[Wish], None]


class Desk:
    """What the pages of one job share.

    Attributes:
        job: the job, over a connection of the monitors' thread.
        ask: hands a wish to that thread; widgets call it from the thread in which they were touched.
        looked: called when the job has changed on somebody's wish, so that all of the monitor shows it.
    """

    def __init__(self, job: Watched, ask: Ask, looked: Callable[[], None]) -> None:
        self.job = job
        self.ask = ask
        self.looked = looked

    @property
    def connection(self) -> Connection:
        """The connection for the monitors' thread."""
        return self.job.connection

    @property
    def path(self) -> str:
        """The job's resource."""
        return f"jobs/{self.job.id}"


class Page(ABC):
    """One tab of a job's monitor.

    Attributes:
        title: the tab's.
        widget: what it shows.
        pause: seconds between two looks, at least.
    """

    title = ""
    pause = 2.0

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._looked_at = float("-inf")
        self._seen: object = None
        self.widget: Any = self.build()

    @abstractmethod
    def build(self) -> Any:
        """The widget."""

    @abstractmethod
    def look(self, view: JobView) -> None:
        """Ask the server for what is shown, and show it. In the monitors' thread; may raise EdtError."""

    @abstractmethod
    def still(self, view: JobView) -> str:
        """What it shows as HTML that lasts without a kernel; "" for nothing. May raise EdtError."""

    def depends_on(self, view: JobView) -> object:
        """What of the job has to change before it is worth another look; by default always."""
        return time.monotonic()

    def turn(self, view: JobView) -> None:
        """Look, if it is time to."""
        now = time.monotonic()
        depends = self.depends_on(view)
        if now - self._looked_at < self.pause or depends == self._seen:
            return
        self.look(view)
        self._looked_at, self._seen = now, depends

    def again(self) -> None:
        """Look at the next turn, whatever was seen."""
        self._looked_at, self._seen = float("-inf"), None
