"""The base of all handlers: the service, the user, JSON out, and the one place where an error becomes an answer.

Handlers are thin: they read the request, call one method of the service, and write what it returns. `prepare` asks the
server's Authorizer before any method of a handler runs. A handler class only names its resource.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.client import responses
from logging import DEBUG, WARNING
from types import ModuleType
from typing import Any, ClassVar, Protocol, cast

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.auth import User
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from jupyter_server.prometheus.log_functions import prometheus_log_method
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError

from edt_jupyter.http.authorization import ACTIONS, answered, denied, implements
from edt_jupyter.http.forwarding import NOT_LEADING, NotReached, Peer, Relay, forwarded_user
from edt_jupyter.http.identity import user_of
from edt_sdk.schemas.errors import BY_CODE, EdtError, InvalidRequest, NotAllowed, ServerUnreachable, StorageFailed
from edt_server.service import Service
from edt_server.store import StoreError

_ASK_AGAIN = 0.1
_FLAGS = {"1": True, "true": True, "0": False, "false": False, "": False}
_CODES = {cls.status: code for code, cls in reversed(BY_CODE.items()) if cls.__base__ is EdtError and cls.status != 500}
_HINTS = {
    405: "See /edt/api/spec.yaml for the verbs of each resource.",
}
# The errors of the system when nothing at all can be written.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WAY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ESTALE})
_SAY_AGAIN = 60.0  # seconds between two lines of the log about the same trouble
_said: dict[str, float] = {}  # such a trouble, and when it was logged, in monotonic seconds


class _Extension(Protocol):
    # The part of `app.EdtApp`, described there, that handlers use. The app imports the handlers, not the reverse.
    @property
    def service(self) -> Service: ...
    @property
    def secret(self) -> str: ...
    @property
    def leads(self) -> bool: ...
    async def still_leads(self) -> bool: ...
    async def elsewhere(self, user: str) -> Peer | None: ...


class EdtHandler(ExtensionHandlerMixin, APIHandler):
    """Base of every handler: `class Stop(EdtHandler, path="/jobs/{id}/stop", resource="edt:jobs")`.

    Attributes:
        path: the path that the class answers, as OpenAPI writes it, "" for a base of other classes.
        auth_resource: the resource that the Authorizer is asked for, "" for a class that answers nothing.
        auth_actions: "read" or "write" for each HTTP method. A method without an entry is refused.
    """

    path: ClassVar[str] = ""
    auth_resource: ClassVar[str] = ""
    auth_actions: ClassVar[Mapping[str, str]] = ACTIONS
    _asked_for: str | None = None  # the user of a request that another server forwards
    _way: tuple[Relay, Peer] | None = None  # the connection over which this request is being forwarded
    _gone = False

    def __init_subclass__(cls, *, path: str = "", resource: str = "", **kwargs: Any) -> None:
        """Set the path and the resource, and wrap every HTTP method that the class defines, see `answered`."""
        super().__init_subclass__(**kwargs)
        cls.path, cls.auth_resource = path, resource or cls.auth_resource
        for method in ACTIONS.keys() & {name.upper() for name in vars(cls)}:
            setattr(cls, method.lower(), answered(vars(cls)[method.lower()]))

    @property
    def extension(self) -> _Extension:
        """Return the app."""
        return cast(_Extension, self.extensionapp)

    @property
    def service(self) -> Service:
        """Return the running service. Raises ServerUnreachable with the reason when it does not run."""
        return self.extension.service

    @property
    def user(self) -> str:
        """Return the user of this request. The service is woken up, because a job may follow."""
        self.service.wake()
        return self._name()

    def _name(self) -> str:
        return self._asked_for or user_of(self.current_user, self.identity_provider)

    # --- from and to other servers ------------------------------------------------------------------------------------

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler itself does
        """Identify the user, or take the name from a server over the same data folder, and ask the Authorizer."""
        self._asked_for = forwarded_user(self.request.headers, self.extension.secret)
        if self._asked_for is None:
            await super().prepare()
        else:
            self.current_user = self._jupyter_current_user = User(username=self._asked_for)
            # Another server took this one for the leader. It may have been stopped since, and the lease may be gone
            # (docs/decisions/034).
            if not await self.extension.still_leads():
                raise HTTPError(NOT_LEADING)
        method = str(self.request.method)
        if method in ACTIONS and implements(type(self), method):
            await self._authorize(method)

    async def _authorize(self, method: str) -> None:
        if not self.current_user:
            raise HTTPError(403)
        action = self.auth_actions.get(method, "")
        if not (action and self.auth_resource and await self.allowed(action, self.auth_resource)):
            raise denied(action, self.auth_resource)

    async def allowed(self, action: str, resource: str) -> bool:
        """Return what the server's Authorizer answers for this request's user."""
        return bool(await ensure_async(self.authorizer.is_authorized(self, self.current_user, action, resource)))

    async def forwarded(self) -> bool:
        """Forward the request to the server that runs the jobs. Returns False when that is this server."""
        if self._asked_for is not None:
            return False
        if self._way is not None:
            try:
                await self._passed_on(*self._way)
            except NotReached:
                raise ServerUnreachable("The server that leads has changed.", hint="Submit the job again.") from None
            return True
        while not self._gone:
            if not await self.begin_forwarding():
                return False
            assert self._way is not None
            relay, peer = self._way
            try:
                if self.request.body:
                    await relay.write(self.request.body)
                await self._passed_on(relay, peer)
            except NotReached:
                await ask_again(peer)
            else:
                break
        return True

    async def begin_forwarding(self) -> bool:
        """Send the head of the request to the server that runs the jobs. Returns False when that is this server."""
        while self._asked_for is None and not self._gone:
            peer = await self.extension.elsewhere(self._name())
            if peer is None:
                break
            try:
                relay = await Relay.begin(self, peer)
            except NotReached:
                await ask_again(peer)
            else:
                self._way = (relay, peer)
                return True
        return False

    async def _passed_on(self, relay: Relay, peer: Peer) -> None:
        changed = asyncio.ensure_future(peer.over())
        try:
            await relay.finish(changed)
        finally:
            self._way = None
            changed.cancel()

    def on_connection_close(self) -> None:
        """Stop forwarding when the client has closed the connection."""
        self._gone = True
        if self._way is not None:
            self._way[0].abandon()
        super().on_connection_close()

    # --- out ----------------------------------------------------------------------------------------------------------

    def reply(self, body: Any, status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.finish(msgspec.json.encode(body))

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Answer with the status of the error that was raised."""
        error = shown(kwargs.get("exc_info", (None, None))[1])
        super().send_error(error.status if isinstance(error, EdtError) else status_code, **kwargs)

    def write_refusal(self, error: EdtError) -> None:
        """Write the answer to a request that is refused before it is read. The caller closes the connection."""
        self.set_status(error.status)
        self.set_header("Content-Type", "application/json")
        self.write(error_body(error.status, error))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write the error as `{"message", "code", "hint", …}`."""
        error = kwargs.get("exc_info", (None, None))[1]
        nobody = getattr(self, "_jupyter_current_user", None) is None
        if nobody and status_code == 403 and isinstance(error, HTTPError) and _says_nothing(error.log_message):
            error = _unknown()
        self.name_allowed(status_code)
        self.finish(msgspec.json.encode(error_body(status_code, error)))

    def name_allowed(self, status_code: int) -> None:
        """Name the methods of this resource where another one was used (RFC 9110, section 15.5.6)."""
        if status_code == 405:
            allowed = [method for method in self.SUPPORTED_METHODS if implements(type(self), method)]
            self.set_header("Allow", ", ".join(allowed))

    def log_exception(self, typ: Any, value: BaseException | None, tb: Any) -> None:
        """Log users' mistakes and closed connections at debug level, everything else as Jupyter does.

        A server that is not ready, as at each start, is one line without a traceback. So is a store or a disk that
        cannot be used, and the same trouble is logged once a minute.
        """
        trouble = shown(value)
        if isinstance(value, ServerUnreachable):
            self.log.info("%s %s: %s", self.request.method, self.request.path, value)
        elif isinstance(value, StreamClosedError) or (isinstance(value, EdtError) and value.status < 500):
            self.log.debug("%s %s: %s", self.request.method, self.request.path, value)
        elif isinstance(trouble, StoreError | StorageFailed):
            news = _is_news(str(trouble))
            self.log.log(WARNING if news else DEBUG, "%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)

    def _log(self) -> None:
        # Jupyter logs several lines, with the headers, for every request that is answered so. `log_exception` has
        # logged why.
        if self.get_status() not in (HTTPStatus.NOT_IMPLEMENTED, ServerUnreachable.status, StorageFailed.status):
            super()._log()
            return
        self.log.debug("%d %s %s", self.get_status(), self.request.method, self.request.path)
        prometheus_log_method(self)  # type: ignore[no-untyped-call]

    # --- in -----------------------------------------------------------------------------------------------------------

    def number(self, name: str, default: int, *, low: int = 0, high: int = 2**63 - 1) -> int:
        """Return a whole number from the query. InvalidRequest outside low … high."""
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

    def real(self, name: str, low: float = -math.inf, high: float = math.inf) -> float | None:
        """Return a number from the query, None when it is not given.

        InvalidRequest for text that is no finite number, or a number out of bounds. Without bounds it is a time in
        seconds since the epoch.
        """
        text = self.get_query_argument(name, "")
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high):
            what = "a time in seconds since 1970" if low == -math.inf else f"a number from {low:g} to {high:g}"
            raise InvalidRequest(f"{name} is {what}, not {text!r}.", field=name)
        return value

    def flag(self, name: str) -> bool:
        """Return True for `?name=1` or `true`, False for `0`, `false` or nothing. InvalidRequest for another value."""
        value = self.get_query_argument(name, "0").lower()
        if value not in _FLAGS:
            raise InvalidRequest(f"{name} is 0 or 1, not {value!r:.60}.", field=name)
        return _FLAGS[value]


def routes_of(*modules: ModuleType, below: str = "") -> list[tuple[str, type[EdtHandler]]]:
    """Return the paths of the handlers in these modules, with `below` in front, in alphabetical order."""
    found = {
        (below + each.path, each)
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, EdtHandler) and each.path
    }
    # A brace sorts after every letter: `/jobs/stop` is tried before `/jobs/{id}`, which would match it.
    return sorted(found, key=lambda route: route[0])


def pattern(path: str) -> str:
    """Return the regular expression of a path. `{n}` is a number."""
    # With or without a slash at the end: dlicmd posts to `/execs/`, and a redirected POST would become a GET.
    return re.sub(r"\{(\w+)\}", _place, path.rstrip("/")) + "/?"


def _place(name: re.Match[str]) -> str:
    return r"(\d{1,6})" if name[1] == "n" else "([^/]+)"


def _says_nothing(message: str | None) -> bool:
    """Return True for Jupyter's own refusal of a request without a valid login."""
    return not message or "xsrf" in message.lower()


def _unknown() -> NotAllowed:
    """Return the error for an unknown user. `login` shows programs that logging in helps."""
    return NotAllowed(
        "This server does not accept the token or the login of this request: it is wrong, or not valid any more.",
        hint="Log in again; from a script give its token, with EDT_TOKEN or Client(token=…): `jupyter server list` "
        "shows it.",
        login="needed",
    )


async def ask_again(peer: Peer) -> None:
    """Wait for the next server in the place of `peer`. Raise the peer's error where there will be none."""
    if peer.silent is not None:
        raise peer.silent
    await asyncio.sleep(_ASK_AGAIN)


def _is_news(trouble: str) -> bool:
    """Return whether this was not said within the last minute."""
    now = time.monotonic()
    for text in [text for text, since in _said.items() if now - since >= _SAY_AGAIN]:
        del _said[text]
    return _said.setdefault(trouble, now) == now


def shown(error: BaseException | None) -> BaseException | None:
    """Return the error as users see it: an OSError of the disk becomes one with an explanation."""
    return (_storage_failed(error) or error) if isinstance(error, OSError) else error


def _storage_failed(error: OSError) -> StorageFailed | None:
    """Return the error to show for an error of the file system, None for any other.

    The path appears only in the server's log: users need not know where the server keeps its files.
    """
    why = error.strerror or str(error)
    if error.errno in _NO_ROOM:
        return StorageFailed(
            f"The server has no room left where it keeps its jobs ({why}); nothing of this request was kept.",
            hint="Delete jobs or data sets that are no longer needed, or ask the server's administrator to make room.",
        )
    if error.errno in _NO_WAY:
        return StorageFailed(
            f"The server cannot read or write where it keeps its jobs ({why}); nothing of this request was kept.",
            hint="The server's administrator finds the path in its log, and EdtApp.data_dir in its settings.",
        )
    return None


def error_body(status: int, error: BaseException | None) -> dict[str, Any]:
    """Return the body of an error. An unexpected error shows no internals."""
    error = shown(error)
    if isinstance(error, EdtError):
        return error.to_json()
    message = error.log_message if isinstance(error, HTTPError) else None
    if isinstance(error, HTTPError) and message:
        message = message % error.args  # also without any: tornado has doubled every % then
    if message is None:
        message = "The server made a mistake." if status >= 500 else f"{responses.get(status, 'Refused')}."
    hint = "The server's log says more." if status >= 500 else _HINTS.get(status, "")
    return {"message": message, "code": _CODES.get(status, "internal" if status >= 500 else "refused"), "hint": hint}
