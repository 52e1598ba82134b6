"""Priority and maximum workers as controls: a changed value counts at once, and a sentence says what it came to."""

from __future__ import annotations

from typing import Any

from edt_sdk.monitor.consequence import consequence
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.page import Desk
from edt_sdk.monitor.parts import done, refused
from edt_sdk.schemas.errors import EdtError, ServerUnreachable
from edt_sdk.schemas.job import JobView

_LABELS = {"priority": "Priority", "max_workers": "Maximum workers"}


class Settings:
    """The controls of one job."""

    def __init__(self, desk: Desk) -> None:
        widgets = toolkit()

        self._desk = desk
        self._filling = False
        style = {"description_width": "initial"}
        self._fields = {
            "priority": widgets.BoundedIntText(
                min=1,
                max=10**9,
                description="Priority",
                tooltip="Weight under fair share: twice as much gets about twice the slots",
                style=style,
                layout=widgets.Layout(width="190px"),
            ),
            "max_workers": widgets.BoundedIntText(
                min=1,
                max=10**6,
                description="Maximum workers",
                tooltip="Most slots it may hold at once",
                style=style,
                layout=widgets.Layout(width="210px"),
            ),
        }
        self._said = widgets.HTML()
        self.fill(desk.job.view)
        for name, field in self._fields.items():
            field.observe(lambda change, name=name: self._changed(name, change["new"]), "value")
        self.widget: Any = widgets.VBox(
            [widgets.HBox(list(self._fields.values()), layout=widgets.Layout(flex_flow="row wrap")), self._said]
        )

    def fill(self, view: JobView) -> None:
        """Show the values that the job has; an ended job's cannot be changed."""
        self._filling = True
        try:
            self._fields["priority"].value = view.priority
            self._fields["max_workers"].value = view.max_workers
        finally:
            self._filling = False
        for field in self._fields.values():
            field.disabled = view.state.final

    def _changed(self, name: str, value: int) -> None:
        if not self._filling:
            self._said.value = f"{_LABELS[name]} {value} …"
            self._desk.ask(lambda: self._apply(name, value))

    def _apply(self, name: str, value: int) -> None:
        """In the monitors' thread. Of several values that were typed quickly only the last one is sent."""
        field, job = self._fields[name], self._desk.job
        if field.value != value:
            return
        if getattr(job.view, name) == value:
            self._said.value = ""
            return
        try:
            # First what it will come to: afterwards the question would be about the present.
            comes_to = self._comes_to(name, value)
            job.update(**{name: value})
        except EdtError as error:
            self._said.value = refused(error)
            self.fill(job.view)
            return
        self._said.value = done(f"{_LABELS[name]} is {value} now. {comes_to}")
        self._desk.looked()

    def _comes_to(self, name: str, value: int) -> str:
        """The consequence; the change does not wait for a forecast that takes too long."""
        try:
            return consequence(self._desk.job.what_if(**{name: value}))
        except ServerUnreachable:
            return "What it comes to takes the server too long to say."
