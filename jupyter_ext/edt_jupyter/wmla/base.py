"""The base of WMLA's routes: their ways to log on, errors as text, and the user's jobs."""

from __future__ import annotations

import time
from typing import Any

from jupyter_core.utils import ensure_async
from tornado.web import HTTPError

from edt_jupyter.http.base import EdtHandler, error_body
from edt_jupyter.http.forwarding import SECRET
from edt_jupyter.wmla import sessions
from edt_jupyter.wmla.credentials import COOKIE, Credentials, from_browser, read
from edt_sdk.schemas.errors import EdtError, NotAllowed, NotFound
from edt_sdk.schemas.events import Event
from edt_server.wmla import ids, log_files
from edt_server.wmla.execs import Described, ExecQuery

TOKEN, USER = "token", "user"
_TEXT = "text/plain; charset=utf-8"
# These clients know 400 and no other status of a refused request (docs/decisions/021).
_AS_THEY_KNOW = {409: 400, 422: 400}
# Never a challenge by Basic: a browser would ask for the password and store it (docs/decisions/020).
_UNKNOWN = 'Bearer realm="jupyter-edt"'


class WmlaHandler(EdtHandler):
    """Base of every handler for WMLA's clients."""

    _shown: Credentials | None = None
    _session: tuple[str, str] | None = None  # what a logon would keep: the kind, and the token or user

    # --- identifying the user -----------------------------------------------------------------------------------------

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler itself does
        """Log on, in any of the clients' ways, or answer 401."""
        self.request.headers = self.request.headers.copy()
        if self.request.method in ("GET", "HEAD", "DELETE"):
            # Some clients send GETs with a body that has no meaning.
            self.request.body = b""
            self.request.headers.pop("Content-Length", None)
        own = SECRET not in self.request.headers
        if own:
            # Before the logon: Jupyter checks it only in the `prepare` that follows, and a wrong host must not test
            # passwords.
            if not self.check_host():
                raise HTTPError(403, "This server does not answer under that host name.")
            await self._log_on()
        try:
            await super().prepare()
        except HTTPError as error:
            if not (own and error.status_code == 403 and self._unauthenticated):
                raise
            # dlicmd needs 401 for a wrong password. Jupyter would answer 403, or redirect to its login page.
            raise HTTPError(401, self._why_not()) from None
        if own and self._unauthenticated and self.request.method != "OPTIONS":
            raise HTTPError(401, self._why_not())

    @property
    def _unauthenticated(self) -> bool:
        return getattr(self, "_jupyter_current_user", None) is None

    async def _log_on(self) -> None:
        headers = self.request.headers
        shown = self.credentials()
        if shown is None:
            return
        # A browser sends both by itself, for a page of any origin (docs/decisions/020).
        if shown.ambient and from_browser(headers):
            if shown.kind == "cookie":
                return  # Jupyter's own rules apply then, with its own cookie
            raise NotAllowed(
                "A browser does not log on by Basic here.", hint="Send the token as X-Auth-Token, or use a script."
            )
        self._shown = shown
        # The credentials of this request decide. A cookie of an earlier logon must not let a wrong password in.
        headers.pop("Cookie", None)
        headers.pop("Authorization", None)
        if hasattr(self.request, "_cookies"):
            del self.request._cookies
        if shown.kind == "basic":
            await self._by_basic(shown)
        else:
            self._by_session(shown.secret) or self._by_token(shown.secret)

    def credentials(self) -> Credentials | None:
        """Return what this request shows, None for nothing of ours."""
        return read(self.request.headers, self.get_cookie(COOKIE))

    async def _by_basic(self, shown: Credentials) -> None:
        self._by_token(shown.secret)
        user = await ensure_async(self.identity_provider.get_user(self))
        if user is None:
            # Jupyter accepts its password only on a login page, so it is the one credential that we check ourselves.
            user = await self.logons.by_password(self.identity_provider, self, shown.secret)
            if user is not None:
                self._by_user(self.identity_provider.user_to_cookie(user))

    @property
    def logons(self) -> sessions.Logons:
        """Return the correct password and the sessions."""
        return sessions.logons(self.settings, str(self.extensionapp.data_dir))

    @property
    def session_key(self) -> str:
        """Return the key of all sessions."""
        return sessions.signing_key(self.extension.secret, self.identity_provider)

    def _by_session(self, token: str) -> bool:
        """Return True when this is a session of ours. An ended session gives no access."""
        if not sessions.is_session(token):
            return False
        if found := self.logons.sessions.read(self.session_key, token):
            kind, value = found
            (self._by_user if kind == USER else self._by_token)(value)
        # Also for an ended session: its token must not be tried as a token of Jupyter after that.
        return True

    def _by_token(self, token: str) -> bool:
        self._session = (TOKEN, token)
        # In the form of Jupyter's identity provider, which then decides as for any other request, JupyterHub's too.
        self.request.headers["Authorization"] = f"token {token}"
        return True

    def _by_user(self, cookie: str) -> None:
        self._session = (USER, cookie)
        # Jupyter's own provider finds an authenticated user here.
        self._jupyter_current_user = self.identity_provider.user_from_cookie(cookie)
        self._token_authenticated = True

    def check_xsrf_cookie(self) -> None:
        """Check XSRF only without WMLA's credentials: a request that has them comes from the client itself."""
        # None of these clients sends `_xsrf`. A page of another site cannot set their headers, and the cookie that a
        # browser sends by itself leaves `_shown` None (docs/decisions/020).
        if self._shown is None:
            super().check_xsrf_cookie()

    def _why_not(self) -> str:
        if self._shown is None:
            return "Log on with Basic, whose password is the server's token, or send X-Auth-Token."
        if self._shown.kind == "basic":
            return "The password is neither the server's token nor its password."
        what = "session" if self._shown.kind == "cookie" else "token is wrong, or its session"
        return f"The {what} is over. Log on again: a session ends after 12 hours, at its logoff, and at some upgrades."

    # --- out ----------------------------------------------------------------------------------------------------------

    def text(self, text: str) -> None:
        """Answer with plain text."""
        self.finish(text, set_content_type=_TEXT)

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Answer with a status that these clients know."""
        error = kwargs.get("exc_info", (None, None))[1]
        status = error.status if isinstance(error, EdtError) else status_code
        # Skip EdtHandler's method, which would take the error's own status.
        super(EdtHandler, self).send_error(_AS_THEY_KNOW.get(status, status), **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write the error as `Error <status>: <what is wrong>`."""
        if status_code == 401:
            self.set_header("WWW-Authenticate", _UNKNOWN)
        self.name_allowed(status_code)
        self.text(_error_text(status_code, kwargs.get("exc_info", (None, None))[1]))

    def write_refusal(self, error: EdtError) -> None:
        """Write the same text for an upload that is refused before it is read."""
        status = _AS_THEY_KNOW.get(error.status, error.status)
        self.set_status(status)
        self.set_header("Content-Type", _TEXT)
        self.write(_error_text(status, error))

    # --- jobs ---------------------------------------------------------------------------------------------------------

    @property
    def base_address(self) -> str:
        """This server's address, as the client reached it."""
        return f"{self.request.protocol}://{self.request.host}{self.base_url}".rstrip("/")

    @property
    def query(self) -> dict[str, str]:
        """Return the last value of each argument of the query."""
        return {name: self.get_query_argument(name, "") for name in self.request.query_arguments}

    async def described(self, identifier: str) -> Described:
        """Return the job with this id, or with this driver's id. NotFound, or NotAllowed for another user's job."""
        user, wrong = self.user, None
        for job in ids.jobs_meant(identifier):
            try:
                row = await self.service.mine(user, job)
            except NotFound as error:
                wrong = wrong or error
            else:
                return Described(row.spec, await self.service.job(user, job), self.service.paths(row))
        raise NotFound(f"There is no exec {identifier}.", hint="GET /execs lists those there are.") from wrong

    async def all_described(self, wanted: ExecQuery | None = None) -> list[Described]:
        """Return the user's jobs, or those that the choice may contain, newest first."""
        wanted = wanted or ExecQuery()
        # In the store's order, jobs after the last one wanted need not be read.
        last = None if wanted.key or wanted.limit is None else wanted.start + wanted.limit
        found = await self.service.described(self.user, states=wanted.states, limit=last)
        return [Described(row.spec, view, self.service.paths(row)) for row, view in found]

    async def launcher_log(self, job: str, last_lines: int | None) -> str:
        """Return the story of how the job came to run, a line for each event."""
        story: list[Event] = []
        while events := await self.service.events(self.user, job, after=story[-1].seq if story else 0):
            story += events
        # By time: a report of the time without a server is dated before the events of the server that took it.
        story.sort(key=lambda event: event.time)
        lines = [f"{_clock(event.time)} {event.text}" for event in story if event.text]
        return log_files.last(lines, last_lines)


def _error_text(status: int, error: BaseException | None) -> str:
    if isinstance(error, HTTPError):
        return f"Error {status}: {error_body(status, error)['message']}\n"
    body = error_body(status, error)
    return f"Error {status}: {body['message']} {body['hint']}".rstrip() + "\n"


def _clock(moment: float) -> str:
    return time.strftime("[%Y-%m-%d %H:%M:%S]", time.localtime(moment))
