"""A job's results saved beside the notebook, with a bar that says how far it is."""

from __future__ import annotations

import threading
import time
from typing import Any

from edt_sdk.formatting.number_words import size
from edt_sdk.http.connection import watching
from edt_sdk.monitor.kernel import toolkit
from edt_sdk.monitor.page import Desk
from edt_sdk.monitor.parts import done, refused
from edt_sdk.schemas.errors import EdtError, InvalidRequest
from edt_sdk.schemas.wire.parts import PARTS

_REDRAW_EVERY = 0.25


class Downloading:
    """Which part, a button, a bar."""

    def __init__(self, desk: Desk) -> None:
        widgets = toolkit()

        self._desk = desk
        self._part = widgets.Dropdown(
            options=[("all", "all"), *((part, part) for part in PARTS if part != "all")],
            value="model",
            description="Download",
            tooltip="What to save: the trained model, its checkpoints, its logs, or all of it",
            style={"description_width": "initial"},
            layout=widgets.Layout(width="190px"),
        )
        self._button = widgets.Button(
            description="Save here", icon="download", tooltip="Save it as a zip beside this notebook"
        )
        self._button.on_click(lambda _: self._start())
        self._bar = widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="180px", display="none"))
        self._said = widgets.HTML()
        row = widgets.HBox([self._part, self._button, self._bar], layout=widgets.Layout(flex_flow="row wrap"))
        self.widget: Any = widgets.VBox([row, self._said])
        self._drawn = 0.0

    def _start(self) -> None:
        """A thread of its own: gigabytes must not hold up the other monitors."""
        self._button.disabled = True
        self._bar.value, self._bar.layout.display = 0.0, None
        self._said.value = "Asking for it …"
        threading.Thread(target=self._save, args=(self._part.value,), name="edt-download", daemon=True).start()

    def _save(self, part: str) -> None:
        connection = watching(self._desk.connection, timeout=60.0)
        try:
            saved = self._desk.job.through(connection).download(".", part, told=self._told)
            self._said.value = done(f"Saved {saved.resolve()} ({size(saved.stat().st_size)}).")
        except EdtError as error:
            self._said.value = refused(error)
        except OSError as error:
            self._said.value = refused(
                InvalidRequest(
                    f"It cannot be saved here: {error.strerror}.", hint="job.download('/a/folder') saves elsewhere."
                )
            )
        finally:
            connection.close()
            self._button.disabled = False
            self._bar.layout.display = "none"

    def _told(self, written: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_EVERY:
            return
        self._drawn = now
        self._bar.value = written / total if total else 0.0
        self._said.value = f"{size(written)} of {size(total)}" if total else size(written)
