"""What a monitor leaves behind: HTML that needs neither kernel nor widget, and survives an untrusted notebook. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def snapshot(head: str, sections: Sequence[tuple[str, str]], trouble: str = "") -> str:
    """The head, then each section that has something to show, folded but for the first.

    Args:
        head: HTML that is always seen.
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
    return f"<div>{''.join(parts)}</div>"
