"""A picture inside HTML: an `<img>` with a data URI, because notebooks strip inline `<svg>`."""

from __future__ import annotations

import base64
from html import escape


def image(svg: str, says: str) -> str:
    """Return an `<img>` of `svg` with `says` as its text, "" for an empty `svg`."""
    if not svg:
        return ""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(says, quote=True)}"/>'
