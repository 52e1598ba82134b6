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
from tornado.web import HTTPError

from edt_sdk.schemas.errors import NotAllowed

Verb = TypeVar("Verb", bound=Callable[..., Any])
_WORDS = {
    "contents": "the files",
    "edt:artifacts": "results",
    "edt:catalogue": "data sets and models",
    "edt:cluster": "slots and queues",
    "edt:jobs": "jobs",
    "edt:logs": "logs",
    "edt:plan": "who may have how many slots",
}
_REFUSED = "The server's Authorizer says no."


def authorized(action: str, *, resource: str) -> Callable[[Verb], Verb]:
    """Ask the server's Authorizer whether the user may do `action` ("read" or "write") with `resource` ("edt:…")."""

    def decorate(verb: Verb) -> Verb:
        async def here_or_there(self: Any, *args: Any, **kwargs: Any) -> None:
            if not await self.forwarded():
                await verb(self, *args, **kwargs)

        asked: Any = decorator.authorized(action, resource=resource, message=_REFUSED)(here_or_there)

        @wraps(verb)
        async def in_words(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                await asked(self, *args, **kwargs)
            except HTTPError as refused:
                if refused.log_message != _REFUSED or not self.current_user:
                    raise
                raise denied(action, resource) from None

        return cast(Verb, in_words)

    return decorate


def denied(action: str, resource: str) -> NotAllowed:
    """What is told to somebody whom the server's Authorizer does not let do `action` with `resource`."""
    verb = "see" if action == "read" else "change"
    return NotAllowed(
        f"You are logged in, but may not {verb} {_WORDS.get(resource, resource)} on this server.",
        hint="Whoever runs it decides that (its Authorizer): ask them.",
        action=action,
        resource=resource,
    )
