"""The tab of the slots: who had which when, whether more of them pay off, and the workers there are now."""

from __future__ import annotations

import time
from typing import Any

from edt_sdk.display.shown import workers_html
from edt_sdk.monitor.drawings import drawing
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.page import Page
from edt_sdk.schemas.job import JobView

_ANYWAY = 10.0


class AllocationPage(Page):
    """Allocation, efficiency, workers."""

    title = "Allocation"

    def build(self) -> Any:
        """Two pictures and a table."""
        widgets = toolkit()

        self._allocation = widgets.HTML("Fetching who had which slots …")
        self._efficiency = widgets.HTML()
        self._workers = widgets.HTML()
        return widgets.VBox([self._allocation, self._efficiency, self._workers])

    def depends_on(self, view: JobView) -> object:
        """A change of its slots; else now and then, since the time axis and the neighbours go on."""
        return view.slots, view.state, time.monotonic() // _ANYWAY

    def look(self, view: JobView) -> None:
        """Fetch all three."""
        self._allocation.value = drawing(self.desk.connection, f"{self.desk.path}/pictures/allocation")
        self._efficiency.value = drawing(self.desk.connection, f"{self.desk.path}/pictures/efficiency")
        self._workers.value = workers_html(self.desk.job.workers())

    def still(self, view: JobView) -> str:
        """The pictures."""
        path = f"{self.desk.path}/pictures"
        return "<br/>".join(drawing(self.desk.connection, f"{path}/{name}") for name in ("allocation", "efficiency"))
