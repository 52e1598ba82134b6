"""The tab of the checkpoints: what there is, and the way back to one of them."""

from __future__ import annotations

from typing import Any

from edt_sdk.display.shown import checkpoints_html
from edt_sdk.formatting.html_table import note
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.page import Page
from edt_sdk.monitor.parts import done, refused
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState, JobView


class CheckpointsPage(Page):
    """A table, and a button to resume from a chosen one."""

    title = "Checkpoints"
    pause = 5.0

    def build(self) -> Any:
        """Choice above, table below: it may be long."""
        widgets = toolkit()

        self._table = widgets.HTML("Fetching the list …")
        self._names = widgets.Dropdown(
            options=(), description="Resume from", style={"description_width": "initial"},
            layout=widgets.Layout(width="260px"),
        )  # fmt: skip
        self._resume = widgets.Button(description="Resume", icon="play", disabled=True)
        self._resume.on_click(lambda _: self._clicked())
        self._said = widgets.HTML()
        row = widgets.HBox([self._names, self._resume], layout=widgets.Layout(flex_flow="row wrap"))
        return widgets.VBox([row, self._said, self._table])

    def look(self, view: JobView) -> None:
        """Fetch the list."""
        found = self.desk.job.checkpoints()
        self._table.value = checkpoints_html(found)
        names = [each["name"] for each in reversed(found) if each["kind"] == "exact"]
        if names != list(self._names.options):
            chosen = self._names.value
            self._names.options = names
            self._names.value = chosen if chosen in names else (names[0] if names else None)
        stands = view.state in (JobState.SUSPENDED, JobState.KILLED, JobState.FAILED)
        self._resume.disabled = not names or not stands
        if not stands and names:
            self._said.value = note("Suspend or stop the job to go back to one of them.")

    def still(self, view: JobView) -> str:
        """The table."""
        return checkpoints_html(self.desk.job.checkpoints())

    def _clicked(self) -> None:
        chosen = self._names.value

        def wish() -> None:
            try:
                self.desk.job.resume(chosen)
            except EdtError as error:
                self._said.value = refused(error)
            else:
                self._said.value = done(f"It goes on from {chosen}; what came after is computed again.")
            self.desk.looked()

        self.desk.ask(wish)
