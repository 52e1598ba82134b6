"""The monitor of a server: its jobs, who has which slots, and jobs side by side; ends when no job is active."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from edt_sdk.display.card import jobs_table, sentence
from edt_sdk.formatting.html_table import note
from edt_sdk.formatting.number_words import stamp
from edt_sdk.http.connection import Params
from edt_sdk.monitor.base import Bundle, Monitor
from edt_sdk.monitor.comparing import Comparing
from edt_sdk.monitor.drawings import drawing
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.snapshot import snapshot
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobView
from edt_sdk.waiting.terminal import jobs_lines
from edt_sdk.waiting.watched import Listing

# Ten thousand jobs are nobody's to read: the newest are listed, the rest is counted by `client.jobs(limit=…)`.
LISTED = 200
SHOWN = 50
TITLES = ("Jobs", "Allocation", "Machine", "Compare")


class ClientMonitor(Monitor):
    """All my jobs, or everybody's."""

    def __init__(self, client: Listing) -> None:
        super().__init__(client.connection)
        self.client = client
        self._views: list[JobView] = []
        self._more = False
        self._taken = 0.0

    def __repr__(self) -> str:
        return f"Monitor of the jobs at {self.client.url}"

    def _build(self) -> list[Any]:
        widgets = toolkit()

        self._head = widgets.HTML("Fetching the jobs …")
        self._everybody = widgets.Checkbox(
            value=False, description="everybody's", indent=False, layout=widgets.Layout(width="130px")
        )
        self._living = widgets.Checkbox(
            value=False, description="only those that live", indent=False, layout=widgets.Layout(width="190px")
        )
        self._search = widgets.Text(placeholder="Name or id", layout=widgets.Layout(width="220px"))
        self._table = widgets.HTML()
        row = widgets.HBox([self._search, self._living, self._everybody], layout=widgets.Layout(flex_flow="row wrap"))
        self._timeline = widgets.HTML("Fetching who had which slots …")
        self._slots, self._shares = widgets.HTML("Fetching the slots …"), widgets.HTML()
        self._comparing = Comparing(lambda: self.connection, self.ask)
        pages = [
            widgets.VBox([row, self._table]),
            self._timeline,
            widgets.VBox([self._slots, self._shares]),
            self._comparing.widget,
        ]
        self.tabs = widgets.Tab(pages, titles=TITLES)
        self.tabs.observe(lambda _: self.ask(lambda: None), "selected_index")
        self._everybody.observe(lambda _: self.ask(lambda: None), "value")
        for control in (self._search, self._living):
            control.observe(lambda _: self.ask(self._draw), "value")
        return [self._head, self.tabs]

    def _look(self) -> None:
        self._views, self._more = self._fetch(everybody=self._everybody.value)
        self._taken = time.time()
        self._draw()
        shown = TITLES[self.tabs.selected_index or 0]
        if shown == "Allocation":
            self._timeline.value = drawing(self.connection, "pictures/timeline")
        elif shown == "Machine":
            self._slots.value = drawing(self.connection, "pictures/slots")
            self._shares.value = drawing(self.connection, "pictures/shares")
        elif shown == "Compare":
            self._comparing.fill()
        if all(view.state.final for view in self._views):
            self._end()

    def _fetch(self, *, everybody: bool) -> tuple[list[JobView], bool]:
        params: Params = {"limit": LISTED, "all": 1 if everybody else None}
        answer = self.connection.json("GET", "jobs", params=params)
        return msgspec.convert(answer["jobs"], list[JobView]), "next" in answer

    def _draw(self) -> None:
        wanted = self._search.value.strip().casefold()
        chosen = [
            view
            for view in self._views
            if (wanted in view.name.casefold() or wanted in view.id.casefold())
            and not (self._living.value and view.state.final)
        ]
        self._table.value = jobs_table(chosen, most=SHOWN)
        self._head.value = note(jobs_words(self._views, more=self._more) + f" As of {stamp(self._taken)}.")

    def _beside(self) -> Bundle:
        said = "This was a monitor of all jobs. Run its cell again to see them; client.jobs() lists them."
        return {"text/html": f"<p>{said}</p>", "text/plain": said}

    def _snapshot(self, trouble: str) -> Bundle:
        taken = self._taken or time.time()
        head = note(f"{jobs_words(self._views, more=self._more)} Snapshot of {stamp(taken)}.")
        sections = [("Jobs", jobs_table(self._views, most=SHOWN))]
        with suppress(EdtError):  # a list without its picture is still a list
            sections += [] if trouble else [("Allocation", drawing(self.connection, "pictures/timeline"))]
        text = "\n".join(map(sentence, self._views[:SHOWN])) or "No jobs."
        return {"text/html": snapshot(head, sections, trouble), "text/plain": f"{text}\nSnapshot of {stamp(taken)}."}

    def _in_terminal(self) -> None:
        jobs_lines(lambda: self._fetch(everybody=False)[0])


def jobs_words(views: Sequence[JobView], *, more: bool) -> str:
    """How many jobs there are, and how many of them do what. Pure."""
    if not views:
        return "No jobs yet."
    living = [view for view in views if not view.state.final]
    holding = sum(1 for view in living if view.slots)
    older = f"the newest {len(views)} jobs; client.jobs() lists older ones"
    known = older if more else f"{len(views)} job{'' if len(views) == 1 else 's'}"
    return f"{holding} hold slots, {len(living) - holding} wait, of {known}."
