"""Ask Jupyter's Authorizer for each request, and word its refusal for the user.

A handler class names its resource once, and the HTTP method gives the action. A class without a resource answers no
request, so a new handler is closed until its author has chosen a resource.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from tornado.web import RequestHandler, authenticated

from edt_sdk.schemas.errors import NotAllowed

Verb = Callable[..., Awaitable[None]]
ACTIONS = {"GET": "read", "HEAD": "read", "POST": "write", "PUT": "write", "PATCH": "write", "DELETE": "write"}
_WORDS = {
    "contents": "the files",
    "edt:artifacts": "results",
    "edt:catalogue": "data sets and models",
    "edt:cluster": "slots and queues",
    "edt:hosts": "hosts",
    "edt:jobs": "jobs",
    "edt:logs": "logs",
    "edt:plan": "who may have how many slots",
}


def implements(handler: type[RequestHandler], method: str) -> bool:
    """Return whether a handler class has code of its own for an HTTP method."""
    verb = method.lower()
    return getattr(handler, verb) is not getattr(RequestHandler, verb)


def answered(verb: Verb) -> Verb:
    """Wrap a method of a handler class: it runs here only when no other server answers the request.

    Jupyter looks for tornado's `authenticated` on each method of an extension and warns where it is missing.
    """

    @wraps(verb)
    async def here_or_forwarded(self: Any, *args: Any, **kwargs: Any) -> None:
        if not await self.forwarded():
            await verb(self, *args, **kwargs)

    return authenticated(here_or_forwarded)  # type: ignore[return-value]  # typed for methods that return None


def denied(action: str, resource: str) -> NotAllowed:
    """Return the error for a refusal of `action` on `resource` by the server's Authorizer."""
    verb = "see" if action == "read" else "change"
    return NotAllowed(
        f"You are logged in, but may not {verb} {_WORDS.get(resource, resource)} on this server.",
        hint="The server's Authorizer decides that: ask its administrator.",
        action=action,
        resource=resource,
    )
