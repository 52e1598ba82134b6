"""Pass a scoring request on to the edge, for a caller whom this server knows."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPResponse
from tornado.httputil import HTTPServerRequest

from edt_jupyter.http.forwarding import HEADER_LENGTH
from edt_sdk.schemas.errors import ServerUnreachable
from edt_server.service import Service

_PASSED_ON = ("Content-Type", "X-Request-Id", HEADER_LENGTH)
# Longer than the longest deadline of a deployment, which the edge keeps.
_PATIENCE = 3700.0


async def ask_edge(service: Service, user: str, name: str, path: str, request: HTTPServerRequest) -> HTTPResponse:
    """Return the edge's answer to a request for a deployment of the user, whatever its status.

    Raises what `Deployments.way` raises, and ServerUnreachable while the edge does not answer.
    """
    url, key = await service.deployments.way(user, name)
    headers = {each: value for each in _PASSED_ON if (value := request.headers.get(each)) is not None}
    try:
        answer = await AsyncHTTPClient().fetch(
            f"{url}{path}",
            method="POST",
            headers=headers | key,
            body=request.body,
            request_timeout=_PATIENCE,
            raise_error=False,
        )
    except OSError as wrong:
        raise ServerUnreachable(f"The deployment's edge does not answer: {wrong}.") from None
    if answer.code == 599:
        cause = cast(HTTPClientError, answer.error)
        raise ServerUnreachable(f"The deployment's edge does not answer: {cause.message}.")
    return answer


def sentence(answer: HTTPResponse) -> str:
    """Return what the edge, or a replica, says is wrong."""
    try:
        return str(msgspec.json.decode(answer.body, type=dict[str, Any])["error"])
    except (msgspec.DecodeError, KeyError):
        return f"The deployment answered {answer.code} {answer.reason}."
