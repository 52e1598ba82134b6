"""Send a request of this server's own to the server that runs the jobs, for this server's user.

Unlike a forwarded request (`forwarding.py`), the body is made here: a specification, or a package sent from a file in
pieces. An error of the other server is raised here unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import HTTPStreamClosedError, SimpleAsyncHTTPClient

from edt_jupyter.http.forwarding import NOT_LEADING, NotReached, Peer
from edt_sdk.packing.upload import Multipart
from edt_sdk.schemas.errors import ServerUnreachable, from_json

_CONNECT_SECONDS = 5.0
_PIECE = 1 << 16
_NO_ANSWER = 599  # tornado's word for it


async def post_json(peer: Peer, path: str, body: bytes) -> bytes:
    """Return the JSON answer to a POST below `/edt/api/` that changes nothing on the other server."""
    headers = {**peer.headers, "Content-Type": "application/json"}
    try:
        return await _ask(HTTPRequest(_url(peer, path), method="POST", headers=headers, body=body))
    except HTTPStreamClosedError as wrong:
        raise NotReached from wrong


async def post_package(peer: Peer, path: str, body: Multipart) -> bytes:
    """Return the JSON answer to a POST of a package, which is not sent twice."""
    headers = {**peer.headers, "Content-Type": body.content_type, "Content-Length": str(len(body))}
    send: Any = partial(_send, body)  # tornado awaits it in spite of its annotation
    sending = HTTPRequest(_url(peer, path), method="POST", headers=headers, body_producer=send)
    try:
        return await _ask(sending)
    except HTTPStreamClosedError:
        raise ServerUnreachable(
            "The server that runs the jobs ended before it answered; the job may or may not have been submitted.",
            hint="Look (`edt list`) before you submit it again.",
        ) from None


async def _send(body: Multipart, write: Callable[[bytes], Awaitable[None]]) -> None:
    while piece := await asyncio.to_thread(body.read, _PIECE):
        await write(piece)


async def _ask(request: HTTPRequest) -> bytes:
    request.connect_timeout = _CONNECT_SECONDS
    request.request_timeout = 0  # the size of a package has no bound that a timeout could know
    client = SimpleAsyncHTTPClient(force_instance=True)
    try:
        answer = await client.fetch(request, raise_error=False)
        if isinstance(answer.error, HTTPStreamClosedError) or answer.code == _NO_ANSWER:
            answer.rethrow()
    except HTTPStreamClosedError:
        raise
    except (OSError, HTTPClientError) as wrong:
        raise NotReached from wrong
    finally:
        client.close()
    if answer.code == NOT_LEADING:
        raise NotReached
    if answer.code >= HTTPStatus.BAD_REQUEST:
        raise from_json(_json(answer.body), answer.code)
    return answer.body


def _json(body: bytes) -> dict[str, Any]:
    """Return the body of an error, {} for what is no JSON object, such as a proxy's page."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {}


def _url(peer: Peer, path: str) -> str:
    return f"{peer.url.rstrip('/')}/edt/api/{path}"
