"""Watch a server: its jobs, its slots, and curves of several jobs.

The monitor ends when no job is active, and no search is that may start one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from edt_sdk.display.card import jobs_table, sentence
from edt_sdk.display.search_view import SEARCH_HEAD, search_cells, search_sentence
from edt_sdk.formatting.number_words import stamp
from edt_sdk.formatting.tables import html_table, note
from edt_sdk.http.connection import Connection
from edt_sdk.monitor.base import Bundle, Monitor, drawn, snapshot
from edt_sdk.schemas.errors import EdtError, NotAllowed, NotFound
from edt_sdk.schemas.job import JobView
from edt_sdk.schemas.search.views import SearchState, SearchView

# The newest jobs that are looked at, and of these the ones that the static picture lists.
LISTED = 200
SHOWN = 50
_POLL_EVERY = 2.0  # seconds between two requests in a terminal


class ClientMonitor(Monitor):
    """Watches a user's jobs at a server."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._views: list[JobView] = []
        self._searches: list[SearchView] = []
        self._more = False
        self._taken = time.time()

    def __repr__(self) -> str:
        return f"Monitor of the jobs at {self.connection.url}"

    def _look(self) -> None:
        self._views = self._fetch()
        self._taken = time.time()
        if not self._searches and all(view.state.final for view in self._views):
            self._end()

    def _fetch(self) -> list[JobView]:
        answer = self.connection.json("GET", "jobs", params={"limit": LISTED})
        self._more = "next" in answer
        self._searches = []
        # An older server has no searches, and a user may have the right to read jobs only.
        with suppress(NotFound, NotAllowed):
            for state in (SearchState.RUNNING, SearchState.CREATED):
                found = self.connection.json("GET", "searches", params={"state": state.value, "limit": LISTED})
                self._searches += msgspec.convert(found["searches"], list[SearchView])
        return msgspec.convert(answer["jobs"], list[JobView])

    def _beside(self) -> Bundle:
        said = "This was a monitor of all jobs. Run its cell again to see them; client.jobs() lists them."
        return {"text/html": f"<p>{said}</p>", "text/plain": said}

    def _snapshot(self, trouble: str) -> Bundle:
        taken = stamp(self._taken)
        head = note(f"{jobs_words(self._views, more=self._more)} Snapshot of {taken}.")
        sections = [("Jobs", jobs_table(self._views, most=SHOWN))]
        with suppress(EdtError):  # a list without its picture is still a list
            sections += [] if trouble else [("Allocation", drawn(self.connection, "pictures/timeline"))]
        if self._searches:
            rows = [search_cells(view) for view in self._searches]
            sections.insert(0, ("Searches", html_table(SEARCH_HEAD, rows, empty="")))
        lines = [*map(search_sentence, self._searches), *map(sentence, self._views[:SHOWN])]
        text = "\n".join(lines) or "No jobs."
        return {"text/html": snapshot(head, sections, trouble), "text/plain": f"{text}\nSnapshot of {taken}."}

    def _in_terminal(self) -> None:
        last = ""
        try:
            while True:
                active = [sentence(view) for view in self._fetch() if not view.state.final]
                if not (lines := [*map(search_sentence, self._searches), *active]):
                    break
                if (text := "\n".join(lines)) != last:
                    print(text, file=sys.stderr, flush=True)
                last = text
                time.sleep(_POLL_EVERY)
        except KeyboardInterrupt:
            pass  # the jobs go on
        print("No job and no search is active.", file=sys.stderr)


def jobs_words(views: Sequence[JobView], *, more: bool) -> str:
    """Return how many jobs there are, and how many of them hold slots or wait."""
    if not views:
        return "No jobs yet."
    active = [view for view in views if not view.state.final]
    holding = sum(1 for view in active if view.slots)
    older = f"the newest {len(views)} jobs; client.jobs() lists older ones"
    known = older if more else f"{len(views)} job{'' if len(views) == 1 else 's'}"
    return f"{holding} hold slots, {len(active) - holding} wait, of {known}."
