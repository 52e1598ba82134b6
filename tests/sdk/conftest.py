"""A small real HTTP server as the other end of protocol tests; nothing is found by accident in their environment."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from edt_sdk.schemas.job import JobSpec, JobState, JobView
from edt_sdk.schemas.search.space import log
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import SearchState, SearchView

INFO = {
    "name": "jupyter-edt",
    "version": "0.1.0",
    "max_upload_bytes": 1_000_000,
    "python": "3.11",
    "user": "ann",
    "instance_groups": ["default"],
}
VARIABLES = (
    "EDT_URL", "EDT_TOKEN", "JPY_PARENT_PID", "JUPYTERHUB_SERVICE_PREFIX", "JUPYTERHUB_API_TOKEN",
    "JUPYTERHUB_SERVICE_URL", "EDT_NONINTERACTIVE", "HTTP_PROXY", "http_proxy",
)  # fmt: skip


@pytest.fixture(autouse=True)
def times_of_day_are_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is expected does not depend on the zone of the machine that tests."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: Any
    body: bytes


@dataclass
class Peer:
    """Answers by (method, path below the API): a function of the request gives (status, JSON or bytes) or a Stream."""

    url: str = ""
    token: str = "secret"
    base: str = "/base/"
    routes: dict[tuple[str, str], Callable[[Request], Any]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def on(self, method: str, path: str, answer: Any) -> None:
        """Answer with this JSON, or with what a function of the request returns."""
        self.routes[method, path] = answer if callable(answer) else lambda _: (200, answer)

    def paths(self) -> list[str]:
        return [f"{r.method} {r.path}" for r in self.requests]


class Stream(list[bytes]):
    """An answer sent piece by piece (chunked); `end=False` breaks the connection off instead of ending it."""

    def __init__(self, *pieces: bytes, end: bool = True) -> None:
        super().__init__(pieces)
        self.end = end


def handler_for(peer: Peer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            prefix = f"{peer.base}edt/api/"
            if not parts.path.startswith(prefix):
                return self.reply(404, {"message": "Not Found", "reason": None})
            path = parts.path.removeprefix(prefix)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            request = Request(self.command, path, query, self.headers, body)
            peer.requests.append(request)
            if peer.token and self.headers.get("Authorization") != f"token {peer.token}":
                return self.reply(403, {"message": "Forbidden", "reason": None})
            route = peer.routes.get((self.command, path))
            if route is None:
                return self.reply(404, {"message": f"no {path}", "code": "not_found", "hint": ""})
            answer = route(request)
            if isinstance(answer, Stream):
                return self.stream(answer)
            return self.reply(*answer)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

        def reply(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
            body = value if isinstance(value, bytes) else b"" if status == 204 else json.dumps(value).encode()
            self.send_response(status)
            for name, text in (headers or {}).items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def stream(self, pieces: Stream) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
            if pieces.end:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(made))
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_port}{made.base}"
    made.on("GET", "", INFO)
    made.on("GET", "searches", {"searches": []})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path, monkeypatch):
    """Jupyter's runtime folder, empty: no test finds a server that happens to run here."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "jupyter-runtime"
    folder.mkdir()
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder))
    monkeypatch.setattr("edt_sdk.http.discovery.LAB_RUNTIME", Path("no-lab-of-this-checkout"))
    return folder


@pytest.fixture
def client(peer):
    from edt_sdk import Client

    with Client(peer.url, peer.token) as made:
        yield made


@pytest.fixture
def make_view():
    def make(**changes: Any) -> JobView:
        return msgspec.structs.replace(VIEW, **changes)

    return make


@pytest.fixture
def make_search():
    def make(**changes: Any) -> SearchView:
        return msgspec.structs.replace(SEARCH, **changes)

    return make


@pytest.fixture
def events():
    """SSE text of (id, kind, value) triples."""

    def write(*triples: tuple[int | str, str, Any]) -> bytes:
        return b"".join(
            f"id: {number}\nevent: {kind}\ndata: {msgspec.json.encode(value).decode()}\n\n".encode()
            for number, kind, value in triples
        )

    return write


@pytest.fixture
def stream():
    return Stream


SEARCH = SearchView(
    id="digits-lr-1",
    owner="ann",
    spec=SearchSpec(
        job=JobSpec(name="digits-lr", main="train.py", max_workers=4, tags=("night",)),
        space={"lr": log(1e-4, 1e-1)},
        metric="loss",
        trials=80,
    ).resolved(),
    state=SearchState.RUNNING,
    message="",
    created=900.0,
    ended=None,
    counts={"FINISHED": 20, "PRUNED": 20, "RUNNING": 2},
    rungs=(),
    best=None,
    outside=0,
    slots=2,
    usable_slots=4,
    expected=80,
)
VIEW = JobView(
    id="edt-1",
    name="digits",
    owner="ann",
    state=JobState.RUNNING,
    state_since=1000.0,
    created=990.0,
    started=1000.0,
    ended=None,
    priority=5000,
    max_workers=4,
    instance_group="default",
    mode="exact",
    seed=0,
    main="train.py",
    args=(),
    slots=2,
    shards=4,
    progress=None,
    reason=None,
    message="",
    result_dir="/data/results/ann/batchworkdir/edt-1",
)
