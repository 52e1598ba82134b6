"""Client mode: another server runs the jobs (`c.EdtApp.remote_url`), and this one asks it for its user.

So each user's own server, with or without JupyterHub, shows the cards and the panel of one shared scheduler. Requests
are forwarded as to a leader, with a token that identifies the user instead of a shared secret. Changes of jobs arrive
over the other server's event bus and are repeated on the bus of this server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from edt_jupyter.http.forwarding import Peer
from edt_jupyter.http.state_events import SCHEMA_ID
from edt_sdk.schemas.errors import InvalidRequest, ServerUnreachable

_AGAIN = 5.0
_PING = 30.0
_LAST_MOMENT = 2.0


class Remote:
    """The server that runs the jobs, with the token for this server's user there ("" for the Hub's token)."""

    def __init__(self, url: str, token: str = "", environ: Mapping[str, str] = os.environ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(
                f"c.EdtApp.remote_url is not the address of a server: {url!r}.",
                hint="It looks like https://hub.example.org/services/edt/.",
            )
        self.url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self._token = token or environ.get("JUPYTERHUB_API_TOKEN", "")

    def peer(self) -> Peer:
        """Return the address and headers for requests to that server."""
        silent = ServerUnreachable(
            f"The server that runs the jobs, {self.url}, does not answer.",
            hint="Jobs go on without it. Try again in a moment; if it stays so, tell its administrator.",
        )
        return Peer(self.url, self._headers(), asyncio.Event().wait, silent)  # type: ignore[arg-type]  # never set

    async def hear(self, tell: Callable[[Any], None], log: logging.Logger) -> None:
        """Call `tell` with each change of a job's state there, forever. Reconnects by itself."""
        said = ""
        while True:
            try:
                connection = await _connect(self._events())
                said = ""
                await _listen(connection, tell)
            except (OSError, HTTPClientError) as wrong:
                if str(wrong) != said:
                    log.warning("edt | %s tells no changes of jobs (%s); asking every %g s", self.url, wrong, _AGAIN)
                    said = str(wrong)
            await asyncio.sleep(_AGAIN)

    def _events(self) -> HTTPRequest:
        # ws for http, wss for https.
        return HTTPRequest(f"ws{self.url.removeprefix('http')}/api/events/subscribe", headers=self._headers())

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self._token}"} if self._token else {}


async def _connect(request: HTTPRequest) -> WebSocketClientConnection:
    """Return a connection. A cancelled attempt leaves no socket open."""
    connecting = asyncio.ensure_future(websocket_connect(request, ping_interval=_PING))
    try:
        return await asyncio.shield(connecting)
    except asyncio.CancelledError:
        # tornado goes on connecting after its future is cancelled. An attempt that takes longer ends with the process.
        connecting.add_done_callback(_hang_up_later)
        await asyncio.wait({connecting}, timeout=_LAST_MOMENT)
        raise


def _hang_up_later(connected: asyncio.Future[WebSocketClientConnection]) -> None:
    if not connected.cancelled() and connected.exception() is None:
        _hang_up(connected.result())


def _hang_up(connection: WebSocketClientConnection) -> None:
    """Close now: tornado's own `close` waits for the other side and would leave a socket if the loop ends meanwhile."""
    protocol = connection.protocol
    connection.close()
    if protocol is not None and protocol.stream is not None:
        protocol.stream.close()


async def _listen(connection: WebSocketClientConnection, tell: Callable[[Any], None]) -> None:
    try:
        while (message := await connection.read_message()) is not None:
            event = msgspec.json.decode(message)
            if event.pop("schema_id", None) == SCHEMA_ID:
                tell({name: value for name, value in event.items() if not name.startswith("__")})
    finally:
        _hang_up(connection)
