"""Up to five jobs side by side: a list to choose from, and the server's picture of their loss curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from edt_sdk.formatting.html_table import note, table
from edt_sdk.formatting.number_words import figures
from edt_sdk.http.connection import Connection
from edt_sdk.monitor.drawings import drawing
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.page import Ask
from edt_sdk.monitor.parts import refused
from edt_sdk.pictures.comparison import MOST_JOBS
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobView

_LISTED = 50


class Comparing:
    """The chooser and the picture.

    Args:
        connection: of the monitors' thread, asked for anew at each use.
        ask: hands a wish to that thread.
        mine: the job that is always among them, "" for none.
    """

    def __init__(self, connection: Callable[[], Connection], ask: Ask, mine: str = "") -> None:
        widgets = toolkit()

        self._connection, self._ask, self._mine = connection, ask, mine
        self._views: dict[str, JobView] = {}
        self._others = widgets.SelectMultiple(
            options=(), rows=5, description="Compare", layout=widgets.Layout(width="420px", max_width="100%")
        )
        self._said = widgets.HTML(self._advice())
        self._picture = widgets.HTML()
        self._others.observe(lambda _: self._ask(self.draw), "value")
        self.widget: Any = widgets.VBox([self._others, self._said, self._picture])

    def _room(self) -> int:
        return MOST_JOBS - 1 if self._mine else MOST_JOBS

    def _advice(self) -> str:
        return note(f"Choose up to {self._room()} jobs (Ctrl or Shift adds one).")

    def fill(self) -> None:
        """List the newest jobs; what was chosen stays. In the monitors' thread; may raise EdtError."""
        answer = self._connection().json("GET", "jobs", params={"limit": _LISTED})
        views = [view for view in msgspec.convert(answer["jobs"], list[JobView]) if view.id != self._mine]
        self._views = {view.id: view for view in views}
        chosen = [job for job in self._others.value if job in self._views]
        options = [(f"{view.name} · {view.id} · {view.state.value.lower()}", view.id) for view in views]
        if options != list(self._others.options):
            # One message to the front end, not one for each: what is chosen is drawn once.
            with self._others.hold_trait_notifications():
                self._others.options = options
                self._others.value = tuple(chosen)
        if not options:
            self._said.value = note("There is no other job to compare with yet.")

    def draw(self) -> None:
        """Fetch the picture of what is chosen. In the monitors' thread."""
        chosen = list(self._others.value)
        if not chosen:
            self._picture.value, self._said.value = "", self._advice()
            return
        if len(chosen) > self._room():
            self._said.value = note(f"{len(chosen)} are chosen; at most {self._room()} fit into one picture.")
            return
        jobs = [self._mine, *chosen] if self._mine else chosen
        try:
            self._picture.value = drawing(self._connection(), "pictures/compare", jobs=",".join(jobs))
        except EdtError as error:
            self._said.value = refused(error)
            return
        self._said.value = last_figures([self._views[job] for job in chosen])


def last_figures(views: Sequence[JobView]) -> str:
    """How far each of them is. Pure."""
    rows = [
        (
            view.name,
            view.state.value.lower(),
            f"{p.update} of {p.total_updates}" if (p := view.progress) is not None else "none yet",
            figures(p.loss, p.accuracy) if p is not None else "",
            figures(p.test_loss, p.test_accuracy) if p is not None and p.test_loss is not None else "",
        )
        for view in views
    ]
    return table(("Job", "State", "Update", "Training", "Validation"), rows, empty="")
