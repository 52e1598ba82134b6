"""Buttons that do something to a job. What cannot be undone asks first, and says what is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from typing import Any

from edt_sdk.monitor.again import again
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.page import Desk
from edt_sdk.monitor.parts import done, refused
from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.job import JobState, JobView

# Seconds within which the second click has to come.
ASKED_FOR = 8.0


class Actions:
    """Stop, suspend, resume, clone."""

    def __init__(self, desk: Desk) -> None:
        widgets = toolkit()

        self._desk = desk
        self._asked_at = float("-inf")
        self._said = widgets.HTML()
        self._buttons: dict[str, Any] = {}
        for name, icon, tooltip, act in (
            ("Suspend", "pause", "Write a checkpoint at the next update and give all slots back", self._suspend),
            ("Resume", "play", "Go on from the newest checkpoint", self._resume),
            ("Stop", "stop", "End this job; its logs and checkpoints stay", self._stop),
            ("Clone", "clone", "The line of Python that submits a job like this one", self._clone),
        ):
            button = widgets.Button(description=name, icon=icon, tooltip=tooltip)
            button.on_click(lambda _, act=act: act())
            self._buttons[name] = button
        self.widget: Any = widgets.VBox(
            [widgets.HBox(list(self._buttons.values()), layout=widgets.Layout(flex_flow="row wrap")), self._said]
        )
        self.fill(desk.job.view)

    def fill(self, view: JobView) -> None:
        """Only what can be done now can be clicked."""
        waits = view.reason is not None and view.reason.code == "suspended"
        self._buttons["Suspend"].disabled = view.state.final or waits
        self._buttons["Resume"].disabled = not (waits or view.state in (JobState.KILLED, JobState.FAILED))
        self._buttons["Stop"].disabled = view.state.final
        if self._asking and time.monotonic() - self._asked_at > ASKED_FOR:
            self._said.value = ""
            self._disarm()

    @property
    def _asking(self) -> bool:
        return self._asked_at > float("-inf")

    def _suspend(self) -> None:
        self._do(
            lambda: self._desk.job.suspend(), "It gives its slots back after the next update. Resume lets it go on."
        )

    def _resume(self) -> None:
        self._do(lambda: self._desk.job.resume(), "It goes on as soon as it gets a slot.")

    def _stop(self) -> None:
        if not self._asking:
            self._asked_at = time.monotonic()
            button = self._buttons["Stop"]
            button.description, button.button_style = "Really stop", "danger"
            self._said.value = stop_means(self._desk.job.view) + " Click again to stop it."
            return
        self._disarm()
        self._do(lambda: self._desk.job.stop(), "It is stopped. Its logs and checkpoints stay.")

    def _clone(self) -> None:
        self._said.value = (
            "Submits another job of the code that came in with this one, with other settings if you like:"
            f"<pre>{self._line()}</pre>"
        )

    def _line(self) -> str:
        return escape(again(self._desk.job.view))

    def _disarm(self) -> None:
        self._asked_at = float("-inf")
        button = self._buttons["Stop"]
        button.description, button.button_style = "Stop", ""

    def _do(self, act: Callable[[], object], said: str) -> None:
        self._said.value = "…"

        def wish() -> None:
            try:
                act()
            except EdtError as error:
                self._said.value = refused(error)
            else:
                self._said.value = done(said)
            self._desk.looked()

        self._desk.ask(wish)


def stop_means(view: JobView) -> str:
    """What stopping it now comes to, with numbers."""
    progress = view.progress
    slots = f"It gives {view.slots} slot{'' if view.slots == 1 else 's'} back"
    if progress is None or not progress.total_updates:
        return f"{slots}."
    left = progress.total_updates - progress.update
    return f"{slots} at update {progress.update} of {progress.total_updates}; {left} updates are left undone."
