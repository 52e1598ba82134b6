"""Relay requests of a widget's page through the kernel to the server, for pages that cannot reach it (VS Code, Colab).

The page's side is `jupyter_ext/lab/src/monitor/kernel_transport.ts`. A page in JupyterLab asks the server itself and
sends nothing here but signs of life.
"""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from edt_sdk.formatting.number_words import size
from edt_sdk.http.connection import Connection, save_file, watching
from edt_sdk.schemas.errors import EdtError, InvalidRequest
from edt_sdk.schemas.wire.parts import PARTS

# Seconds since its last request for which a question is repeated while the kernel is busy.
_RECENT = 30.0


class WidgetRelay:
    """Answers the requests of a widget, one after the other, in a thread and over a connection of its own."""

    def __init__(self, widget: Any, connection: Connection) -> None:
        self._widget = widget
        self._connection = connection
        self._requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._asked: dict[str, float] = {}

    def receive(self, message: dict[str, Any]) -> None:
        """Take a message of the page."""
        if message.get("kind") == "save":
            # A download can take minutes. In its own thread and over its own connection it delays no answer.
            threading.Thread(target=self._save, args=(message,), name="edt-download", daemon=True).start()
            return
        if message.get("method") == "GET":
            self._asked[message["path"]] = time.monotonic()
        self._enqueue(message)

    def repeat(self) -> None:
        """Answer again what was asked last: while a cell runs, the kernel cannot read that the page asks again."""
        newest = max(self._asked.values(), default=0.0)
        # Relative to the newest request: while a cell runs, the clock goes on but the page's requests do not arrive.
        self._asked = {path: asked for path, asked in self._asked.items() if asked > newest - _RECENT}
        for path in self._asked:
            # No request of the page waits for this answer. The page recognises it by its path.
            self._enqueue({"id": 0, "method": "GET", "path": path})

    def close(self) -> None:
        """End the thread."""
        self._requests.put(None)

    def _enqueue(self, message: dict[str, Any]) -> None:
        self._requests.put(message)
        # Started on the first request, because a page in JupyterLab asks the server itself and needs no thread here.
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="edt-relay", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (message := self._requests.get()) is not None:
            # One thread sends all requests in turn: a connection is not safe to share, and answers keep their order.
            status, body = self._answer(message)
            self._widget.send(
                {"kind": "answer", "id": message["id"], "path": message["path"], "status": status, "body": body}
            )
        self._connection.close()

    def _answer(self, message: dict[str, Any]) -> tuple[int, str]:
        try:
            body = self._connection.text(message["path"], method=message["method"], body=message.get("body"))
        except EdtError as error:
            return error.status, msgspec.json.encode(error.to_json()).decode()
        return (200 if body else 204), body

    def _save(self, message: dict[str, Any]) -> None:
        """Save a part of a job's result in the kernel's folder, which is the notebook's."""
        job, part = message["job"], message["part"]
        target = Path(f"{job}-{part}.zip").resolve()
        connection = watching(self._connection, timeout=60.0)
        try:
            # An unknown part would become part of a file's name before the server refuses it.
            if part not in PARTS:
                raise InvalidRequest(f"part is one of {', '.join(PARTS)}, not {part!r}.", field="part")
            written = save_file(connection, f"jobs/{job}/result", target, params={"part": part})
            status, said = 200, f"Saved {target} ({size(written)})."
        except EdtError as error:
            status, said = error.status, f"{error.message} {error.hint}".strip()
        except OSError as error:
            status, said = 507, f"It cannot be saved here: {error.strerror}. job.download('/a/folder') saves elsewhere."
        finally:
            connection.close()
        self._widget.send({"kind": "saved", "id": message["id"], "path": "", "status": status, "body": said})
