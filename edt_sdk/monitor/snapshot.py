"""The static picture that a monitor leaves: HTML without kernel or widget, shown by untrusted notebooks too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import msgspec

from edt_sdk.display.log_text import LogLine, log_html
from edt_sdk.display.picture import fetch_picture
from edt_sdk.http.connection import Connection
from edt_sdk.schemas.errors import EdtError
from edt_sdk.waiting.watched import Watched

# Lines of the log that are kept.
_LINES = 200
Section = tuple[str, str]


def snapshot(head: str, sections: Sequence[Section], trouble: str = "") -> str:
    """Return the head, then each section that has something to show, folded but for the first.

    Args:
        head: HTML that is always shown.
        sections: title and HTML of each.
        trouble: why there is no newer one.
    """
    parts = [head]
    if trouble:
        parts.append(f"<p>⚠ {escape(trouble)}</p>")
    opened = " open"
    for title, body in sections:
        if body:
            parts.append(f"<details{opened}><summary><b>{escape(title)}</b></summary>{body}</details>")
            opened = ""
    # Line breaks, so that the parts stay apart where a front end shows the text without its tags.
    return "<div>" + "\n".join(parts) + "</div>"


def drawn(connection: Connection, path: str, **params: str | int | float | None) -> str:
    """Return the server's picture at `path` as HTML."""
    return fetch_picture(connection, path, params)._repr_html_()


def job_sections(job: Watched) -> list[Section]:
    """Return what is kept of a job. A section that cannot be fetched is left out."""
    pictures, connection = f"jobs/{job.id}/pictures", job.connection
    # Functions and not texts, so that a request that fails costs only its own section.
    sections: dict[str, Callable[[], str]] = {
        "Metrics": lambda: drawn(connection, f"{pictures}/loss", smooth=0.3),
        "Allocation": lambda: "<br/>".join(drawn(connection, f"{pictures}/{n}") for n in ("allocation", "efficiency")),
        "Logs": lambda: _last_lines(job),
        "Checkpoints": lambda: job.checkpoints()._repr_html_(),
    }
    found = []
    for title, fetch in sections.items():
        try:
            found.append((title, fetch()))
        except EdtError:
            continue
    return found


def _last_lines(job: Watched) -> str:
    page = job.connection.json("GET", f"jobs/{job.id}/logs", params={"stream": "all", "tail": _LINES})
    lines = msgspec.convert(page["lines"], list[LogLine])
    return log_html(lines) if lines else ""
