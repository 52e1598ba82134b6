"""Forward a request to another server, and its answer to the client.

Neither is held in memory whole: uploads, downloads and event streams pass piece by piece, as fast as the slower side.
The user is identified here. The leader over the same data folder receives the user's name, and trusts it because the
request carries a secret that only such servers can read. A remote server receives a token (`remote.py`). Only the
client's headers listed below are forwarded: no token and no cookie.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, RequestStartLine, ResponseStartLine
from tornado.iostream import IOStream, StreamClosedError
from tornado.tcpclient import TCPClient
from tornado.web import HTTPError, RequestHandler

from edt_sdk.schemas.errors import EdtError, ServerUnreachable

# Of a request to a deployment with binary tensors, and of its answer.
HEADER_LENGTH = "Inference-Header-Content-Length"
SECRET, USER = "X-Edt-Forwarded", "X-Edt-User"
# The status of a server that was taken for the leader and is not. It did nothing, so ask again.
NOT_LEADING = 421
_CONNECT_SECONDS = 5.0
_ANY_SIZE = 1 << 62
_PIECE = 1 << 16
_ASKED = ("Accept", "Content-Type", "Content-Length", "Last-Event-ID", "If-Match", "If-None-Match", HEADER_LENGTH)
_ANSWERED = (
    "Content-Type",
    "Content-Length",
    "Content-Disposition",
    "Cache-Control",
    "X-Accel-Buffering",
    "ETag",
    HEADER_LENGTH,
)
_EVENTS = "text/event-stream"
_API = "/edt/api/"


class NotReached(Exception):
    """Raised when a request reached no server and nothing was answered: ask again."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The server that answers in place of this one.

    Attributes:
        url: its address, base URL included.
        headers: headers that prove the user to the peer.
        over: returns when it is another server's turn.
        silent: the error when the peer is not reached. None where another server will take its place soon, for a retry.
    """

    url: str
    headers: Mapping[str, str]
    over: Callable[[], Awaitable[None]]
    silent: EdtError | None = None


def introduction(secret: str, user: str) -> dict[str, str]:
    """Return the headers that name the user to a server over the same data folder."""
    return {SECRET: secret, USER: quote(user)}


def forwarded_user(headers: HTTPHeaders, secret: str) -> str | None:
    """Return the user that another server asks for, None for a client's own request. 403 for a wrong secret."""
    shown = headers.get(SECRET)
    if shown is None:
        return None
    # Compared in constant time. Without a secret of its own this server believes no other server.
    if not secret or not hmac.compare_digest(shown.encode(), secret.encode()):
        raise HTTPError(403, "This is no server over the same data folder.")
    return unquote(headers.get(USER, ""))


class _Answer(HTTPMessageDelegate):
    """Pass the leader's answer to the handler's client. The connection is closed when the client has gone."""

    def __init__(self, handler: RequestHandler, stream: IOStream) -> None:
        self._handler = handler
        self._stream = stream
        self.status = 0
        self.kind = ""
        self.whole = False

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        """Pass on the head of the answer."""
        assert isinstance(start_line, ResponseStartLine)
        self.status = start_line.code
        if self.status == NOT_LEADING:
            return
        handler = self._handler
        handler.set_status(start_line.code, start_line.reason)
        for name in _ANSWERED:
            if name in headers:
                handler.set_header(name, headers[name])
        self.kind = headers.get("Content-Type", "")
        if "Location" in headers:
            here, api, _ = str(handler.request.path).partition(_API)
            handler.set_header("Location", f"{here}{api}{headers['Location'].partition(_API)[2]}")

    async def data_received(self, chunk: bytes) -> None:
        """Pass on the next piece of the answer, and wait until it is sent before the next is read."""
        if self.status == NOT_LEADING:
            return
        try:
            self._handler.write(chunk)
            await self._handler.flush()
        except StreamClosedError:
            self._stream.close()

    def finish(self) -> None:
        """Note that the answer is complete."""
        self.whole = True


class Relay:
    """One forwarded request, made by `begin`."""

    def __init__(self, handler: RequestHandler, stream: IOStream) -> None:
        self._handler = handler
        self._stream = stream
        parameters = HTTP1ConnectionParameters(
            no_keep_alive=True, max_body_size=_ANY_SIZE, chunk_size=_PIECE, decompress=False
        )
        self._connection = HTTP1Connection(stream, True, parameters)
        self._answer = _Answer(handler, stream)
        self._read: asyncio.Future[bool] | None = None

    @classmethod
    async def begin(cls, handler: RequestHandler, peer: Peer) -> Relay:
        """Connect to the peer and send everything but the body. NotReached when it does not answer."""
        parts = urlsplit(peer.url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ServerUnreachable(
                f"The server that leads, at {peer.url or 'an unknown address'}, cannot be reached from other servers.",
                hint="Use that one, or let it listen on a port.",
            )
        try:
            stream = await TCPClient().connect(
                parts.hostname,
                parts.port or (443 if parts.scheme == "https" else 80),
                ssl_options=ssl.create_default_context() if parts.scheme == "https" else None,
                timeout=_CONNECT_SECONDS,
            )
        except (OSError, StreamClosedError, TimeoutError) as wrong:
            raise NotReached from wrong
        relay = cls(handler, stream)
        try:
            await relay._send_head(parts.path.rstrip("/"), parts.netloc, peer.headers)
        except BaseException as wrong:
            relay.abandon()
            if isinstance(wrong, StreamClosedError):
                raise NotReached from wrong
            raise
        return relay

    async def _send_head(self, base: str, host: str, introduced: Mapping[str, str]) -> None:
        request = self._handler.request
        # The path below the base URL, which may differ from the leader's.
        own = str(self._handler.settings.get("base_url", "/")).rstrip("/")
        headers = HTTPHeaders({name: request.headers[name] for name in _ASKED if name in request.headers})
        headers.update({"Host": host, "Connection": "close", **introduced})
        uri = base + str(request.uri).removeprefix(own)
        await self._connection.write_headers(RequestStartLine(str(request.method), uri, "HTTP/1.1"), headers)
        self._read = asyncio.ensure_future(self._connection.read_response(self._answer))

    async def write(self, piece: bytes) -> None:
        """Send the next piece of the body. A piece that the peer no longer reads is dropped: its answer says why."""
        try:
            await self._connection.write(piece)
        except StreamClosedError:
            return

    async def finish(self, changed: asyncio.Future[Any]) -> None:
        """Pass on the answer after a complete body, to its end or until `changed`, when the leader changes.

        Raises:
            NotReached: ask again.
            ServerUnreachable: there is no answer to something that may have been done.
        """
        assert self._read is not None
        try:
            self._connection.finish()
            await asyncio.wait({self._read, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.abandon()
            self._read.cancel()  # no effect on a finished future
            await asyncio.gather(self._read, return_exceptions=True)
        answer, handler = self._answer, self._handler
        # A server that does not lead did nothing. Without an answer only a read is retried: a change may be made.
        if answer.status == NOT_LEADING or (answer.status == 0 and handler.request.method in ("GET", "HEAD")):
            raise NotReached
        if answer.status == 0:
            raise ServerUnreachable(
                "The server that runs the jobs ended before it answered; what was asked may or may not have been done.",
                hint="Look (`edt list`) before you ask again.",
            )
        if answer.whole or answer.kind.startswith(_EVENTS):
            # A client resumes a stream of events that ends without an `end`, at this server or another.
            handler.finish(**({"set_content_type": answer.kind} if answer.kind else {}))
        else:
            self._hang_up()

    def abandon(self) -> None:
        """Close the connection: the client has gone, or nothing more is wanted."""
        self._stream.close()

    def _hang_up(self) -> None:
        """Close the client's connection, so that it notices an incomplete answer."""
        connection = self._handler.request.connection
        if isinstance(connection, HTTP1Connection):
            connection.stream.close()
