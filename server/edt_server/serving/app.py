"""Answer over HTTP: scoring requests, the questions of the v2 protocol, and what the server and Prometheus ask.

A request passes one chain of `await`, without a task or a line in the log of its own. Keys are in no log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from edt_sdk.schemas.serving.replica_channel import LARGEST_FRAME, Signature
from edt_server.serving.dispatch import Pending, Refusal
from edt_server.serving.edge import Edge, LiveDeployment
from edt_server.serving.metrics import exposition
from edt_server.serving.target import LiveTarget

log = logging.getLogger(__name__)
# Content types of each form but "verbatim", which takes all. A request without one is taken as it is.
_JSON = b"application/json"
_TYPES = {
    "v2": (_JSON, b"application/octet-stream"),
    "simple": (_JSON, b"application/octet-stream", b"application/x-npy", b"image/png", b"image/jpeg"),
    "invocations": (_JSON,),
}
# What curl calls every body that it is not told about.
_UNTOLD = b"application/x-www-form-urlencoded"
_HEADER_LENGTH = b"inference-header-content-length"
_LENGTH = re.compile(rb"\d{1,10}")
_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_LARGEST_BODY = LARGEST_FRAME // 2
_ALLOWED_HEADERS = ("Authorization", "X-Auth-Token", "X-User-Token", "X-Request-Id", _HEADER_LENGTH.decode())
_EXPOSED_HEADERS = ("X-EDT-Version", "X-EDT-Replica", "X-Request-Id", "Server-Timing", _HEADER_LENGTH.decode())

Headers = Mapping[bytes, bytes]
RawHeaders = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that may be answered: its deployment is there and its key is valid.

    Attributes:
        headers: by their names in lower case.
        version: the number in the address, None where there is none.
        caller: what distinguishes it from other callers.
        receive: the rest of the request, as in ASGI.
    """

    deployment: LiveDeployment
    headers: Headers
    version: str | None
    caller: str
    receive: Receive

    def target(self) -> LiveTarget:
        """Return the target that answers. Refusal when there is none."""
        return self.deployment.target(self.version, self.caller)


# Status, headers and body.
Answered = tuple[int, RawHeaders, bytes | memoryview]
Answer = Callable[[Edge, Call], Awaitable[Answered]]


class DeploymentRoute:
    """An ASGI application for a route of deployments. It checks what all of them check, `answer` does the rest."""

    def __init__(self, edge: Edge, answer: Answer) -> None:
        self._edge = edge
        self._answer = answer
        self._requests = count(1)
        self._prefix = os.urandom(6).hex()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        if b"origin" not in headers:
            await self._reply(scope, headers, receive, send)
            return
        deployment = self._edge.deployments.get(scope["path_params"]["deployment"])

        async def reply(scope: Scope, receive: Receive, send: Send) -> None:
            await self._reply(scope, headers, receive, send)

        # Made for this request, because each deployment has origins of its own and only browsers send one.
        middleware = CORSMiddleware(
            reply,
            allow_origins=deployment.settings.origins if deployment else (),
            allow_methods=("GET", "POST"),
            allow_headers=_ALLOWED_HEADERS,
            expose_headers=_EXPOSED_HEADERS,
        )
        await middleware(scope, receive, send)

    async def _reply(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        request_id = headers.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = f"{self._prefix}-{next(self._requests)}".encode()
        try:
            status, reply_headers, body = await self._answer(self._edge, self._call(scope, headers, receive))
        except Refusal as refusal:
            status, reply_headers, body = _json({"error": refusal.error}, refusal.status)
            reply_headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
        except ClientDisconnect:
            return
        reply_headers += [(b"content-length", str(len(body)).encode()), (b"x-request-id", request_id)]
        await send({"type": "http.response.start", "status": status, "headers": reply_headers})
        await send({"type": "http.response.body", "body": body})

    def _call(self, scope: Scope, headers: Headers, receive: Receive) -> Call:
        if scope["method"] == "OPTIONS":
            raise Refusal(405, "Only browsers ask for options, with an Origin.")
        path, client = scope["path_params"], scope["client"]
        deployment = self._edge.find(path["deployment"])
        address, inner = client[0] if client else "", None
        if b"x-edt-inner" in headers:  # the server calls for many people
            inner = headers[b"x-edt-inner"].decode("latin-1")
            address = headers.get(b"x-edt-caller", b"").decode("latin-1") or address
        caller = self._edge.caller(deployment, _token(headers), inner, address)
        return Call(deployment, headers, path.get("version"), caller, receive)


def scoring(form: str) -> Answer:
    """Return what answers the scoring requests of a form."""

    async def answer(edge: Edge, call: Call) -> Answered:
        deadline = call.target().target.deadline  # refused before the body is read
        content_type = _content_type(call.headers, form)
        body = await _read(call, min(call.deployment.settings.max_body, _LARGEST_BODY))
        header_length = _header_length(call.headers, len(body)) if form == "v2" else None
        now = time.monotonic()
        pending = Pending(body, form, content_type, header_length, now, now + deadline)
        name = call.deployment.settings.name
        result = None
        while result is None:
            # A file that has changed in the meantime may have other targets, or none.
            target = edge.find(name).target(call.version, call.caller)
            result = await target.ask(pending, call.receive)
        if isinstance(result, Refusal):
            raise result
        queued = (pending.taken or now) - pending.arrived
        headers: RawHeaders = [
            (b"content-type", result.answer.content_type.encode()),
            (b"x-edt-version", target.target.version.encode()),
            (b"x-edt-replica", str(result.worker).encode()),
            (b"server-timing", f"queue;dur={queued * 1e3:.2f}, predict;dur={result.seconds * 1e3:.2f}".encode()),
        ]
        if result.answer.header_length is not None:
            headers.append((_HEADER_LENGTH, str(result.answer.header_length).encode()))
        return result.answer.status, headers, result.body

    return answer


async def model_metadata(edge: Edge, call: Call) -> Answered:
    """Answer with the metadata of v2, from the signature that a replica has reported."""
    target = call.target()
    if not target.seen:
        raise Refusal(503, target.target.reason or "No replica has been ready yet, so the signature is unknown.")
    signature = target.signature or Signature(())
    versions = sorted({each.number for each in call.deployment.targets})
    names = {"name": call.deployment.settings.name, "versions": versions, "platform": "jupyter-edt"}
    return _json({**names, "inputs": signature.inputs, "outputs": signature.outputs})


async def model_ready(edge: Edge, call: Call) -> Answered:
    """Answer whether a replica could take a request at once."""
    target = call.target()
    if not target.replicas:
        raise Refusal(503, target.target.reason or "No replica is ready yet.")
    return _json({"name": call.deployment.settings.name, "ready": True})


def make_app(edge: Edge) -> Starlette:
    """Return the application. It follows the edge's file while it runs."""
    model = "/v2/models/{deployment}"

    def route(path: str, method: str, answer: Answer) -> Route:
        return Route(path, DeploymentRoute(edge, answer), methods=[method, "OPTIONS"])

    async def server_metadata(_: Request) -> Response:
        extensions = ["binary_tensor_data"]
        return JSONResponse({"name": "jupyter-edt", "version": version("jupyter-edt"), "extensions": extensions})

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(_: Request) -> Response:
        return JSONResponse({"ready": edge.informed}, 200 if edge.informed else 503)

    async def metrics(request: Request) -> Response:
        edge.check_inner(request.headers.get("x-edt-inner"))
        return Response(exposition(edge), media_type="text/plain; version=0.0.4")

    async def state(request: Request) -> Response:
        edge.check_inner(request.headers.get("x-edt-inner"))
        return Response(msgspec.json.encode(edge.state()), media_type="application/json")

    return Starlette(
        routes=[
            route(f"{model}/infer", "POST", scoring("v2")),
            route("/predict/{deployment}", "POST", scoring("simple")),
            route("/invocations/{deployment}", "POST", scoring("invocations")),
            route("/dlim/v1/inference/{deployment}", "POST", scoring("verbatim")),
            route(f"{model}/versions/{{version}}/infer", "POST", scoring("v2")),
            *(route(f"{each}/ready", "GET", model_ready) for each in (model, f"{model}/versions/{{version}}")),
            *(route(each, "GET", model_metadata) for each in (model, f"{model}/versions/{{version}}")),
            Route("/v2", server_metadata),
            Route("/v2/health/live", live),
            Route("/v2/health/ready", ready),
            Route("/metrics", metrics),
            Route("/edt/state", state),
        ],
        exception_handlers={HTTPException: _failed, Refusal: _failed, Exception: _failed},
        lifespan=lambda app: _running(edge),
    )


@asynccontextmanager
async def _running(edge: Edge) -> AsyncIterator[None]:
    await edge.look()
    following = asyncio.create_task(edge.run(), name="edge")
    following.add_done_callback(_end_when_failed)
    yield
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    edge.close()


def _end_when_failed(following: asyncio.Task[None]) -> None:
    if not following.cancelled() and (wrong := following.exception()) is not None:
        log.critical("the edge no longer follows its file, and starts again", exc_info=wrong)
        signal.raise_signal(signal.SIGTERM)


async def _failed(_: Request, wrong: Exception) -> Response:
    if isinstance(wrong, HTTPException):  # Starlette's own: no such path or method
        wrong = Refusal(wrong.status_code, f"{wrong.detail}.", wrong.headers)
    elif not isinstance(wrong, Refusal):
        wrong = Refusal(500, "The edge has failed. Its log has the reason.")
    return JSONResponse({"error": wrong.error}, wrong.status, wrong.headers)


def _token(headers: Headers) -> bytes | None:
    if (sent := headers.get(b"authorization")) is not None:
        kind, _, token = sent.partition(b" ")
        if kind.lower() == b"bearer":
            return token.strip()
    return headers.get(b"x-auth-token") or headers.get(b"x-user-token")


def _content_type(headers: Headers, form: str) -> str:
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Refusal(415, "A compressed body cannot be read. Send it without Content-Encoding.")
    sent = headers.get(b"content-type", b"")
    kind = sent.partition(b";")[0].strip().lower()
    if form in _TYPES and kind not in (b"", _UNTOLD, *_TYPES[form]):
        accepted = ", ".join(each.decode() for each in _TYPES[form])
        raise Refusal(415, f"Send the body with a Content-Type of {accepted}, not {kind.decode('latin-1')}.")
    return sent.decode("latin-1")


def _header_length(headers: Headers, size: int) -> int | None:
    if (sent := headers.get(_HEADER_LENGTH)) is None:
        return None
    if not _LENGTH.fullmatch(sent) or int(sent) > size:
        raise Refusal(400, f"Inference-Header-Content-Length is a number of bytes, at most those of the body, {size}.")
    return int(sent)


async def _read(call: Call, most: int) -> bytes:
    body, more = bytearray(), True
    size = int(call.headers.get(b"content-length", 0))
    while more and size <= most:
        message = await call.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        size, more = max(size, len(body)), message.get("more_body", False)
    if size > most:
        raise Refusal(413, f"A request has at most {most:,} bytes.")
    return bytes(body)


def _json(content: Mapping[str, object], status: int = 200) -> Answered:
    return status, [(b"content-type", _JSON)], msgspec.json.encode(content)
