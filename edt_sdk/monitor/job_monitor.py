"""Watch a single job in a widget."""

from __future__ import annotations

from functools import cached_property

from edt_sdk.display.card import MIME, html_card, live_card, text_snapshot
from edt_sdk.monitor.base import Bundle, Monitor
from edt_sdk.monitor.snapshot import job_sections, snapshot
from edt_sdk.schemas.job import JobState
from edt_sdk.waiting.terminal import job_line
from edt_sdk.waiting.watched import Watched


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
        view, taken = self.job.view, self.job.taken
        return {
            MIME: live_card(view, taken, self.connection.url),
            "text/html": html_card(view, taken),
            "text/plain": text_snapshot(view, taken),
        }

    def _for_good(self) -> bool:
        # A stopped or failed job may have been resumed since its view was taken.
        return self._twin.view.state in (JobState.FINISHED, JobState.ERROR)

    def _snapshot(self, trouble: str) -> Bundle:
        view, taken = self._twin.view, self._twin.taken
        sections = [] if trouble and not view.state.final else job_sections(self._twin)
        left: Bundle = {
            "text/html": snapshot(html_card(view, taken, trouble=trouble), sections),
            "text/plain": text_snapshot(view, taken, trouble=trouble),
        }
        # The card of a job that goes on shows the present in front ends that know it.
        return left if view.state.final else {MIME: live_card(view, taken, self.connection.url), **left}

    def _in_terminal(self) -> None:
        job_line(self.job)
