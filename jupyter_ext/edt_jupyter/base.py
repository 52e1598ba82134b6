"""What all handlers share: the service, the user, JSON out, and the one place where an error becomes an answer.

Handlers are thin: they read the request, call one method of the service, write what it returns. Each verb has its own
`@authenticated` and its own `@authorized` with both arguments written out, because a decorated method that is shared
remembers the first call's.
"""

from __future__ import annotations

from http.client import responses
from typing import Any, Protocol, cast

import msgspec
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from edt_jupyter.identity import user_of
from edt_sdk.schemas.errors import BY_CODE, EdtError, InvalidRequest
from edt_server.service import Service

_CODES = {cls.status: code for code, cls in reversed(BY_CODE.items()) if cls.__base__ is EdtError and cls.status != 500}
_HINTS = {
    403: "Send the server's token (Authorization: token …); `jupyter server list` shows it.",
    405: "See /edt/api/spec.yaml for the verbs of each resource.",
}


class Extension(Protocol):
    """The part of `app.EdtApp` that handlers use; the app knows the handlers, not they the app."""

    @property
    def service(self) -> Service:
        """The running service; ServerUnreachable with the reason when it does not run."""


class EdtHandler(ExtensionHandlerMixin, APIHandler):
    """Base of every handler under `/edt/api`."""

    @property
    def service(self) -> Service:
        """The running service; ServerUnreachable with the reason when it does not run."""
        return cast(Extension, self.extensionapp).service

    @property
    def user(self) -> str:
        """Who asks; with the first one the service gets ready for a job."""
        self.service.wake()
        return user_of(self.current_user, self.identity_provider)

    # --- out ----------------------------------------------------------------------------------------------------------

    def reply(self, body: Any, status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.finish(msgspec.json.encode(body))

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Answer with the status of the error that was raised."""
        error = kwargs.get("exc_info", (None, None))[1]
        super().send_error(error.status if isinstance(error, EdtError) else status_code, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write the error as `{"message", "code", "hint", …}`."""
        self.finish(msgspec.json.encode(error_body(status_code, kwargs.get("exc_info", (None, None))[1])))

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """Users' mistakes are no news; a connection that is gone needs no answer."""
        if isinstance(value, StreamClosedError) or (isinstance(value, EdtError) and value.status < 500):
            self.log.debug("%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)

    # --- in -----------------------------------------------------------------------------------------------------------

    def number(self, name: str, default: int, *, low: int = 0, high: int = 2**63 - 1) -> int:
        """A whole number from the query; InvalidRequest outside low … high."""
        text = self.get_query_argument(name, "")
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise InvalidRequest(f"{name} is a whole number from {low} to {high}, not {text!r}.", field=name)
        return value

    def flag(self, name: str) -> bool:
        """True for `?name=1`; also true, True."""
        return self.get_query_argument(name, "0").lower() in ("1", "true")


def error_body(status: int, error: BaseException | None) -> dict[str, Any]:
    """What is told about an error; nothing of the server's inside for one that was not foreseen."""
    if isinstance(error, EdtError):
        return error.to_json()
    message = error.log_message if isinstance(error, HTTPError) else None
    if isinstance(error, HTTPError) and message and error.args:
        message = message % error.args
    if message is None:
        message = "The server made a mistake." if status >= 500 else f"{responses.get(status, 'Refused')}."
    hint = "The server's log says more." if status >= 500 else _HINTS.get(status, "")
    return {"message": message, "code": _CODES.get(status, "internal" if status >= 500 else "refused"), "hint": hint}
