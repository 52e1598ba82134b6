"""The monitor of one job: its card's head above five tabs, of which the one that is shown asks for something."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from edt_sdk.display.card import MIME, head_html, html_card, live_card, text_snapshot
from edt_sdk.formatting.html_table import note
from edt_sdk.formatting.number_words import stamp
from edt_sdk.monitor.allocation import AllocationPage
from edt_sdk.monitor.base import SIGNS, Bundle, Monitor
from edt_sdk.monitor.checkpoints import CheckpointsPage
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.logs import LogsPage
from edt_sdk.monitor.metrics import MetricsPage
from edt_sdk.monitor.overview import Overview
from edt_sdk.monitor.page import Desk, Page
from edt_sdk.monitor.snapshot import snapshot
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState
from edt_sdk.waiting.terminal import job_line
from edt_sdk.waiting.watched import Watched

# Seconds after which a cell counts as one that somebody watches the job beside, such as job.wait().
_BUSY = 3.0
PAGES: tuple[type[Page], ...] = (Overview, MetricsPage, AllocationPage, LogsPage, CheckpointsPage)


class JobMonitor(Monitor):
    """One job, until it has ended."""

    def __init__(self, job: Watched) -> None:
        super().__init__(job.connection)
        self.job = job

    def __repr__(self) -> str:
        return f"Monitor of job {self.job.id}"

    def _build(self) -> list[Any]:
        widgets = toolkit()

        self._twin = self.job.through(self.connection)
        self._head = widgets.HTML()
        self._draw_head()
        desk = Desk(self._twin, self.ask, self._look)
        self.pages = [kind(desk) for kind in PAGES]
        self._others = cycle(self.pages[1:])
        self.tabs = widgets.Tab([page.widget for page in self.pages], titles=[page.title for page in self.pages])
        self.tabs.observe(lambda _: self.ask(lambda: None), "selected_index")
        return [self._head, self.tabs]

    @property
    def page(self) -> Page:
        """The tab that is shown."""
        return self.pages[self.tabs.selected_index or 0]

    def _look(self) -> None:
        if self.over:
            return
        # A wish that changed the job has its answer already, but what else happened meanwhile is as new.
        self._twin.refresh()
        self.job.saw(self._twin.view)
        self._draw_head()
        if self._twin.view.state.final:
            self._end()
            return
        self.page.turn(self._twin.view)
        if SIGNS.busy_for() > _BUSY:
            # The front end cannot say which tab it shows before the cell has ended: each of them has its turn.
            next(self._others).turn(self._twin.view)

    def _draw_head(self) -> None:
        view = self._twin.view
        age = note(f"as of {stamp(self._twin.taken)}")
        self._head.value = f"{head_html(view)} &nbsp; {age}"

    def _beside(self) -> Bundle:
        view, taken = self.job.view, self.job.taken
        return {
            MIME: live_card(view, taken, self.connection.url),
            "text/html": html_card(view, taken),
            "text/plain": text_snapshot(view, taken),
        }

    def _for_good(self) -> bool:
        # One that was stopped or failed may have been resumed since it was seen.
        return self._twin.view.state in (JobState.FINISHED, JobState.ERROR)

    def _snapshot(self, trouble: str) -> Bundle:
        view, taken = self._twin.view, self._twin.taken
        sections = [] if trouble and not view.state.final else self._sections()
        html = html_card(view, taken, trouble=trouble)
        left: Bundle = {
            "text/html": snapshot(html, sections),
            "text/plain": text_snapshot(view, taken, trouble=trouble),
        }
        if view.state.final:
            return left
        # Of a job that goes on the card shows the present, in front ends that can.
        return {MIME: live_card(view, taken, self.connection.url), **left}

    def _sections(self) -> list[tuple[str, str]]:
        """What each tab would have shown; one that cannot be had is left out."""
        found = []
        for page in self.pages[1:]:
            try:
                found.append((page.title, page.still(self._twin.view)))
            except EdtError:
                continue
        return found

    def _in_terminal(self) -> None:
        job_line(self.job)
