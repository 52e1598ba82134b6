"""Jupyter's `@authorized`, with types, and with both arguments required.

Without them Jupyter's decorator takes action and resource from the first request it sees and keeps them for all
others. Write it on every verb, below `@authenticated`; never share a decorated verb between handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from jupyter_server.auth import decorator

Verb = TypeVar("Verb", bound=Callable[..., Any])


def authorized(action: str, *, resource: str) -> Callable[[Verb], Verb]:
    """Ask the server's Authorizer whether the user may do `action` ("read" or "write") with `resource` ("edt:…")."""
    return cast("Callable[[Verb], Verb]", decorator.authorized(action, resource=resource))
