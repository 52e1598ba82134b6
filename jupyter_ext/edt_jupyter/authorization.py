"""Jupyter's `@authorized`, with types, with both arguments required, and with the way to the server that leads.

Without them Jupyter's decorator takes action and resource from the first request it sees and keeps them for all
others. Write it on every verb, below `@authenticated`; never share a decorated verb between handlers. Who may do it
here has it done by the leader, if that is another server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from jupyter_server.auth import decorator

Verb = TypeVar("Verb", bound=Callable[..., Any])


def authorized(action: str, *, resource: str) -> Callable[[Verb], Verb]:
    """Ask the server's Authorizer whether the user may do `action` ("read" or "write") with `resource` ("edt:…")."""

    def decorate(verb: Verb) -> Verb:
        @wraps(verb)
        async def here_or_there(self: Any, *args: Any, **kwargs: Any) -> None:
            if not await self.forwarded():
                await verb(self, *args, **kwargs)

        return cast(Verb, decorator.authorized(action, resource=resource)(here_or_there))

    return decorate
