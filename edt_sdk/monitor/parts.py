"""The sentences that all tabs are made of: what was done, what was refused, how long something lasts. Pure."""

from __future__ import annotations

from html import escape

from edt_sdk.formatting.html_table import BAD
from edt_sdk.schemas.errors import EdtError


def refused(error: EdtError) -> str:
    """What went wrong and what to do, as a person reads it; icon and words as well as colour."""
    hint = f" {escape(error.hint)}" if error.hint else ""
    return f'<span style="color: {BAD}"><b>✘</b></span> {escape(error.message)}{hint}'


def done(text: str) -> str:
    """What was done."""
    return f"✔ {escape(text)}" if text else ""


def lasting(seconds: float) -> str:
    """A duration as people say it: "41 s", "3 min 20 s", "2 h 05 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
