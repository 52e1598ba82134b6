"""The static picture that a monitor leaves: HTML without kernel or widget, shown by untrusted notebooks too."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from edt_sdk.display.picture import fetch_picture
from edt_sdk.http.connection import Connection

Section = tuple[str, str]


def snapshot(head: str, sections: Sequence[Section], trouble: str = "") -> str:
    """Return the head, `trouble`, and each section (title, HTML) that is not empty, folded but for the first."""
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
