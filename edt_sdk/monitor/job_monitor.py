"""Watch a single job in a widget."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Protocol, Self

import msgspec

from edt_sdk.display import card
from edt_sdk.display.log_text import LogLine, log_html
from edt_sdk.display.readings import Checkpoints
from edt_sdk.http.connection import Connection
from edt_sdk.monitor.base import Bundle, Monitor, Section, drawn, snapshot
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState, JobView
from edt_sdk.waiting.waiting import ProgressLine, watch

# Lines of the log that the static picture keeps.
_LINES = 200


class Watched(Protocol):
    """Declares what a monitor uses of `Job`, which this room must not import because `Job` creates monitors."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def connection(self) -> Connection: ...  # noqa: D102
    @property
    def view(self) -> JobView: ...  # noqa: D102
    @property
    def taken(self) -> float: ...  # noqa: D102
    def through(self, connection: Connection) -> Self: ...  # noqa: D102
    def saw(self, view: JobView) -> None: ...  # noqa: D102
    def refresh(self) -> Self: ...  # noqa: D102
    def checkpoints(self) -> Checkpoints: ...  # noqa: D102


class JobMonitor(Monitor):
    """Watches one job until it has ended."""

    def __init__(self, job: Watched) -> None:
        super().__init__(job.connection)
        self.job = job
        self.shows = job.id

    def __repr__(self) -> str:
        return f"Monitor of job {self.job.id}"

    @cached_property
    def _twin(self) -> Watched:
        """The job over the connection of the monitor's thread, which exists from `show()` on."""
        return self.job.through(self.connection)

    def _look(self) -> None:
        self._twin.refresh()
        # The user's Job object belongs to the thread that runs cells: only the view passes over, never the connection.
        self.job.saw(self._twin.view)
        if self._twin.view.state.final:
            self._end()

    def _beside(self) -> Bundle:
        return card.bundle(self.job.view, self.job.taken, self.connection.url)

    def _for_good(self) -> bool:
        # A stopped or failed job may have been resumed since its view was taken.
        return self._twin.view.state in (JobState.FINISHED, JobState.ERROR)

    def _snapshot(self, trouble: str) -> Bundle:
        view = self._twin.view
        left = card.bundle(view, self._twin.taken, self.connection.url, trouble=trouble)
        left["text/html"] = snapshot(left["text/html"], [] if trouble and not view.state.final else self._sections())
        # The card of a job that goes on shows the present in front ends that know it.
        if view.state.final:
            del left[card.MIME]
        return left

    def _sections(self) -> list[Section]:
        """Return what is kept of the job. A section that cannot be fetched is left out."""
        job, connection, pictures = self._twin, self.connection, f"jobs/{self.job.id}/pictures"

        def last_lines() -> str:
            page = connection.json("GET", f"jobs/{job.id}/logs", params={"stream": "all", "tail": _LINES})
            lines = msgspec.convert(page["lines"], list[LogLine])
            return log_html(lines) if lines else ""

        # Functions and not texts, so that a request that fails costs only its own section.
        sections: dict[str, Callable[[], str]] = {
            "Metrics": lambda: drawn(connection, f"{pictures}/loss", smooth=0.3),
            "Allocation": lambda: "<br/>".join(
                drawn(connection, f"{pictures}/{name}") for name in ("allocation", "efficiency")
            ),
            "Logs": last_lines,
            "Checkpoints": lambda: job.checkpoints()._repr_html_(),
        }
        found = []
        for title, fetch in sections.items():
            with suppress(EdtError):
                found.append((title, fetch()))
        return found

    def _in_terminal(self) -> None:
        line = ProgressLine(after=0.0)
        try:
            for view in watch(self.job.connection, self.job.id):
                if view is not None:
                    self.job.saw(view)
                    line.show(view)
        except KeyboardInterrupt:
            pass  # Ctrl-C leaves the monitor, and the job goes on
        finally:
            line.close()
