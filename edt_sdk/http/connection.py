"""Wrap one HTTP session with one server: token, timeouts, retries, errors.

Everything that leaves this machine for a server passes here. A refusal of the server becomes its error class
(`schemas/errors.py`), and a network problem becomes ServerUnreachable. Only GETs are retried automatically, because no
other request is safe to send twice. `following.py` resumes streams.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from edt_sdk.schemas.errors import EdtError, NotAllowed, ServerUnreachable, from_json

API = "edt/api"
CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 60.0
_IS_IT_RUNNING = "Is it running?"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Params = dict[str, str | int | float | None]


def is_loopback(url: str) -> bool:
    """Return whether `url` names this machine by its loopback name or address."""
    return (urlsplit(url).hostname or "") in _LOOPBACK


def how_to_start() -> str:
    """Return the command that starts a server here, in the environment of a checkout of our source its own."""
    try:
        here = Path.cwd()
    except OSError:  # the working folder was removed
        return "jupyter lab, or jupyter edt"
    # `make lab` runs the Python of .venv. Another one in the same folder has jobs of its own.
    made = (Path(sys.prefix) == folder / ".venv" for folder in (here, *here.parents) if _is_checkout(folder))
    return f"{'make' if any(made) else 'jupyter'} lab, or jupyter edt"


def _is_checkout(folder: Path) -> bool:
    return (folder / "jupyter_ext" / "edt_jupyter").is_dir()


class TokenAuth(requests.auth.AuthBase):
    """Adds Jupyter's token to a request. As an `auth` object it keeps requests from using a .netrc entry instead."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request with the Authorization header."""
        if self._token:
            request.headers["Authorization"] = f"token {self._token}"
        return request


class Connection:
    """Holds a session with the server at `url`, such as `http://127.0.0.1:8888/user/ann/` with its base_url.

    The token is "" when the server wants none. `retries` are of a GET when the network or a proxy fails, and an answer
    counts as lost after `timeout` seconds without a byte.
    """

    def __init__(self, url: str, token: str = "", *, retries: int = 3, timeout: float = READ_TIMEOUT) -> None:
        self.url = url.rstrip("/") + "/"
        self.timeout = timeout
        self._token = token
        self._session = _session(url, token, retries)
        # A second session, because in requests retries belong to a session and not to a request.
        self._once = _session(url, token, 0)

    def close(self) -> None:
        """Close all sockets."""
        self._session.close()
        self._once.close()

    def holds(self, text: str) -> bool:
        """Return whether `text` contains this session's token."""
        return bool(self._token) and self._token in text

    # --- requests -----------------------------------------------------------------------------------------------------

    def json(self, method: str, path: str, *, params: Params | None = None, body: Any = None) -> Any:
        """Send a request and return the decoded JSON of the answer, None for 204.

        Raises:
            EdtError: the class of the server's refusal, or ServerUnreachable.
        """
        return self.versioned(method, path, params=params, body=body)[0]

    def versioned(
        self, method: str, path: str, *, params: Params | None = None, body: Any = None, made_from: str = ""
    ) -> tuple[Any, str]:
        """Send a request and return the decoded JSON of the answer with its version (ETag, "" without one).

        `made_from` is the version to replace, "" for any.

        Raises:
            ChangedMeanwhile: the server has another version now.
            EdtError: as `json`.
        """
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": "application/json"}
        if made_from:
            headers["If-Match"] = f'"{made_from}"'
        with self.open(method, path, params=params, data=data, headers=headers) as response:
            version = response.headers.get("ETag", "").removeprefix("W/").strip('"')
            return self._decode(response), version

    def post_body(self, path: str, body: Any, content_type: str) -> Any:
        """POST a body that is read while it is sent (`read` and `__len__`), and return the decoded answer."""
        # The server unpacks and checks before it answers, so this may take longer than other requests.
        try:
            with self.open("POST", path, data=body, headers={"Content-Type": content_type}, timeout=300.0) as response:
                return self._decode(response)
        except ServerUnreachable as broken:
            if not getattr(body, "sent", 0) or not broken.hint.startswith(_IS_IT_RUNNING):
                raise
            # A server that closes a connection in the middle of a body may have sent the reason, which is then lost.
            raise ServerUnreachable(
                f"The server at {self.url} broke off the upload.",
                hint="Its log says why, such as a full disk; with less data in the package it may go through.",
                url=self.url,
            ) from None

    def text(self, path: str, *, params: Params | None = None, method: str = "GET", body: str | None = None) -> str:
        """Return an answer as text, such as a picture. Bytes that are no UTF-8 are replaced. `body` is sent as JSON."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        with self.open(method, path, params=params, data=body, headers=headers) as response:
            try:
                return response.content.decode("utf-8", "replace")
            except requests.RequestException as broken:
                raise self.unreachable(broken, "broke off its answer") from broken

    def open(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        data: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
        once: bool = False,
    ) -> requests.Response:
        """Send a request and return the open answer, with a status below 300. The caller closes it.

        `once`: never retry, not even a GET, for callers with their own retries.
        """
        try:
            response = (self._once if once else self._session).request(
                method,
                f"{self.url}{API}/{path.lstrip('/')}",
                params={key: value for key, value in (params or {}).items() if value is not None},
                data=data,
                headers=headers,
                timeout=(CONNECT_TIMEOUT, timeout or self.timeout),
                # A redirect usually leads to a login page, which would look like an answer.
                allow_redirects=False,
                stream=True,
            )
        except requests.RequestException as broken:
            raise self.unreachable(broken, "does not answer") from broken
        if response.status_code >= 300:
            with response:
                raise self._refusal(response)
        return response

    # --- errors -------------------------------------------------------------------------------------------------------

    def unreachable(self, cause: Exception, what: str) -> ServerUnreachable:
        """Return the error for a network problem, without the wording of the transport."""
        hint = f"{_IS_IT_RUNNING} Start one with: {how_to_start()}"
        if isinstance(cause, requests.exceptions.SSLError):
            what, hint = "has a certificate that is not trusted here", "Set REQUESTS_CA_BUNDLE to its certificate."
        return ServerUnreachable(f"The server at {self.url} {what}.", hint=hint, url=self.url)

    def _decode(self, response: requests.Response) -> Any:
        try:
            content = response.content
        except requests.RequestException as broken:
            raise self.unreachable(broken, "broke off its answer") from broken
        if not content:
            return None
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError:
            raise ServerUnreachable(
                f"What answers at {self.url}{API} is not jupyter-edt: it did not send JSON.",
                hint="Check the address, and that no login page stands in between.",
            ) from None

    def _refusal(self, response: requests.Response) -> EdtError:
        status = response.status_code
        if status < 400:
            where = response.headers.get("Location", "elsewhere")
            return NotAllowed(
                f"The server at {self.url} sends this request to {where} instead of answering it.",
                hint="It probably wants a login: give the server's token, with EDT_TOKEN or Client(token=…).",
            )
        try:
            body = msgspec.json.decode(response.content)
        except (msgspec.DecodeError, requests.RequestException):
            body = None
        if not isinstance(body, dict):
            body = {"message": f"The server at {self.url} answered {status} {response.reason}."}
        if status in (401, 403) and (not body.get("code") or body.get("login")):
            return NotAllowed(
                f"The server at {self.url} does not accept this token.",
                hint="Give its token with EDT_TOKEN or Client(token=…); `jupyter server list` shows it.",
            )
        # A proxy answers so while the server behind it restarts. The server's own refusals have a code.
        if status in (502, 503, 504) and not body.get("code"):
            return ServerUnreachable(f"The server at {self.url} answered {status} {response.reason}.", url=self.url)
        return from_json(body, status)


def _session(url: str, token: str, retries: int) -> requests.Session:
    session = requests.Session()
    session.auth = TokenAuth(token)
    session.headers["User-Agent"] = "jupyter-edt"
    # No cookies: each request stands for itself, and a token alone needs no XSRF handshake.
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    if is_loopback(url):
        session.trust_env = False  # a proxy in the environment cannot reach our loopback
        # `trust_env` also covers the trusted certificates, such as a server's self-signed one, so they are read here.
        session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
    policy = Retry(
        total=retries,
        read=min(1, retries),
        allowed_methods=frozenset({"GET"}),
        status_forcelist=(502, 503, 504),
        backoff_factor=0.1,
        raise_on_status=False,
    )
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=policy))
    return session


def watching(connection: Connection, *, timeout: float = 10.0) -> Connection:
    """Return a separate connection to the same server, without retries, for a thread that polls."""
    return Connection(connection.url, connection._token, retries=0, timeout=timeout)


def save_file(
    connection: Connection,
    path: str,
    target: Path,
    *,
    params: Params | None = None,
    told: Callable[[int, int | None], None] = lambda written, total: None,
) -> int:
    """Write an answer's body to `target` while it arrives, and return its number of bytes.

    `told` is called with the bytes so far and the total, which is None where the server does not send it.
    """
    # Under a temporary name first, so that a partial file never has the name.
    partial = target.with_name(f".{target.name}.part")
    written = 0
    try:
        with connection.open("GET", path, params=params) as response, partial.open("wb") as file:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            for chunk in response.iter_content(1 << 20):
                written += file.write(chunk)
                told(written, total)
        partial.replace(target)
    except requests.RequestException as broken:
        raise connection.unreachable(broken, "broke off the download") from broken
    finally:
        partial.unlink(missing_ok=True)
    return written
