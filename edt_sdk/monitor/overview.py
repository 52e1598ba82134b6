"""The first tab: how the job is, why, when it will end, and what can be done to it."""

from __future__ import annotations

import time
from html import escape
from typing import Any

from edt_sdk.display.card import picture, why_words
from edt_sdk.formatting.html_table import facts
from edt_sdk.formatting.number_words import clock, figures, zone
from edt_sdk.monitor.actions import Actions
from edt_sdk.monitor.downloading import Downloading
from edt_sdk.monitor.drawings import drawing
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.pace import Pace
from edt_sdk.monitor.page import Desk, Page
from edt_sdk.monitor.parts import lasting
from edt_sdk.monitor.settings import Settings
from edt_sdk.schemas.job import JobView

_SPARK_EVERY = 2.0


class Overview(Page):
    """State, figures, settings, actions, downloads."""

    title = "Overview"
    pause = 0.0

    def __init__(self, desk: Desk) -> None:
        self._pace = Pace()
        self._spark_at = float("-inf")
        self._sparked: object = None
        super().__init__(desk)
        self._show(desk.job.view)

    def build(self) -> Any:
        """Facts above, controls below."""
        widgets = toolkit()

        self._why = widgets.HTML()
        self._spark = widgets.HTML(layout=widgets.Layout(margin="0 24px 0 0"))
        self._facts = widgets.HTML()
        self._settings = Settings(self.desk)
        self._actions = Actions(self.desk)
        self._downloading = Downloading(self.desk)
        looks = widgets.HBox([self._spark, self._facts], layout=widgets.Layout(flex_flow="row wrap"))
        parts = [self._why, looks, self._settings.widget, self._actions.widget, self._downloading.widget]
        return widgets.VBox(parts)

    def look(self, view: JobView) -> None:
        """The curve when it has changed; the rest is in the job itself."""
        now = time.monotonic()
        self._show(view)
        if view.progress != self._sparked and now - self._spark_at >= _SPARK_EVERY:
            self._spark.value = drawing(self.desk.connection, f"{self.desk.path}/pictures/spark")
            self._sparked, self._spark_at = view.progress, now

    def still(self, view: JobView) -> str:
        """The figures."""
        return facts(rows(view, time.time(), None))

    def _show(self, view: JobView) -> None:
        now = time.time()
        self._pace.saw(view, now)
        self._why.value = escape(why_words(view))
        self._facts.value = facts(rows(view, now, self._pace.ends(view)))
        if not self._spark.value:
            self._spark.value = picture(view)
        self._settings.fill(view)
        self._actions.fill(view)


def rows(view: JobView, now: float, ends: float | None) -> list[tuple[str, str]]:
    """What is known of a job, each with its unit. Pure.

    Args:
        view: the job.
        now: seconds since the epoch.
        ends: when it ends at this pace, seconds since the epoch; None where that is not known.
    """
    p = view.progress
    found: list[tuple[str, str]] = []
    if p is not None:
        found.append(("Update", f"{p.update} of {p.total_updates}" if p.total_updates else str(p.update)))
        found.append(("Epoch", f"{min(p.epoch + 1, p.epochs)} of {p.epochs}" if p.epochs else ""))
        found.append(("Training", figures(p.loss, p.accuracy)))
        tested = p.test_loss is not None or p.test_accuracy is not None
        found.append(("Validation", figures(p.test_loss, p.test_accuracy) if tested else "none yet"))
        if not view.state.final and p.samples_per_second:
            found.append(("Speed", f"{p.samples_per_second:.4g} samples per second"))
    elif not view.state.final:
        found.append(("Update", "none yet"))
    if not view.state.final:
        found.append(("Slots", f"{view.slots} of at most {view.max_workers}"))
    found.append(("Instance group", f"{view.instance_group}, priority {view.priority}"))
    if view.started is not None:
        until = view.ended if view.ended is not None else now
        found.append(("Since its start", lasting(until - view.started)))
    if ends is not None:
        found.append(("Ends about", f"{clock(ends)} {zone()}, in {lasting(ends - now)}, at this pace"))
    if view.warm_start:
        found.append(("Began with the weights of", view.warm_start))
    if view.validates:
        found.append(("Validates", view.validates))
    return found
