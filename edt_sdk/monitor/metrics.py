"""The tab of the loss: its picture over samples, updates or time, smoothed at will, and other jobs beside it."""

from __future__ import annotations

from typing import Any

from edt_sdk.monitor.comparing import Comparing
from edt_sdk.monitor.drawings import drawing
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.page import Page
from edt_sdk.schemas.job import JobView

_AXES = (("Samples", "samples"), ("Updates", "updates"), ("Time", "time"))


class MetricsPage(Page):
    """Loss, validations, comparison."""

    title = "Metrics"
    # A front end that shows the next picture flickers less when it is not asked to every second.
    pause = 2.0

    def build(self) -> Any:
        """Axis and smoothing above, picture, comparison."""
        widgets = toolkit()

        self._axis = widgets.ToggleButtons(
            options=_AXES, value="samples", tooltips=("comparable after a rescale", "optimizer steps", "wall time"),
            style={"button_width": "90px"},
        )  # fmt: skip
        self._smooth = widgets.FloatSlider(
            value=0.3, min=0.0, max=1.0, step=0.1, description="Smoothing", readout_format=".1f",
            continuous_update=False, style={"description_width": "initial"},
        )  # fmt: skip
        self._picture = widgets.HTML("Fetching the curve …")
        self._comparing = Comparing(lambda: self.desk.connection, self.desk.ask, self.desk.job.id)
        for control in (self._axis, self._smooth):
            control.observe(lambda _: self.desk.ask(self.again), "value")
        row = widgets.HBox([self._axis, self._smooth], layout=widgets.Layout(flex_flow="row wrap"))
        return widgets.VBox([row, self._picture, self._comparing.widget])

    def depends_on(self, view: JobView) -> object:
        """New figures."""
        return view.progress, view.state

    def look(self, view: JobView) -> None:
        """Fetch the picture."""
        first = self._seen is None
        self._picture.value = self._drawn()
        if first:
            self._comparing.fill()

    def still(self, view: JobView) -> str:
        """The picture."""
        return self._drawn()

    def _drawn(self) -> str:
        path = f"{self.desk.path}/pictures/loss"
        return drawing(self.desk.connection, path, x=self._axis.value, smooth=self._smooth.value)
