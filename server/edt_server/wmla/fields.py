"""Texts of a console's request, whose body is a JSON object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest

_AS_THEY_ARE = ("tmpfileContent", "tfmainContent")


def text(body: Mapping[str, Any], field: str) -> str:
    """A text without blanks around it, "" for none. InvalidRequest when it is something else."""
    value = body.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequest(f"{field} is a text, not {value!r}.", field=field)
    return value if field in _AS_THEY_ARE else value.strip()


def required(body: Mapping[str, Any], field: str) -> str:
    """The same; InvalidRequest when there is none."""
    found = text(body, field)
    if not found:
        raise InvalidRequest(f"The request has no {field}.", field=field)
    return found
