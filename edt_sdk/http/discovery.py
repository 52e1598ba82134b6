"""Find the server when no address is given.

In this order: the arguments, `EDT_URL`/`EDT_TOKEN`, the server that started this kernel (`JPY_PARENT_PID`) or
terminal (`JUPYTER_SERVER_URL`), JupyterHub's variables, the server that `make lab` runs for the checkout around the
current folder, then the only running server that answers under `/edt/api`. A given address is used or refused, never
replaced by another. When no server is found, the error lists what was tried.

Running servers are read from Jupyter's runtime folder (`jpserver-<pid>.json`), the same files that
`jupyter_server.serverapp.list_running_servers` reads. Importing that module takes over a second, and it deletes files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

import msgspec

from edt_sdk.http.connection import Connection, how_to_start, is_loopback
from edt_sdk.schemas.errors import EdtError, NotFound, ServerUnreachable

PROBE_TIMEOUT = 5.0
# Paths after the base_url in an address that is copied from a browser.
# What `make lab` starts has a runtime folder of its own in the checkout.
LAB_RUNTIME = Path(".lab", "runtime")
_PAGES = ("edt/api", "lab", "tree", "notebooks", "doc", "edt")
_OF_CHECKOUT = "the JupyterLab of this checkout"
# JupyterHub's prefixes. The name after one is a part of the address, though a page may have the same name.
_PREFIXES = ("user", "services")


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a server's description of itself at `/edt/api`. `slots` is 0 where an earlier version leaves it out."""

    name: str
    version: str
    max_upload_bytes: int
    python: str
    user: str
    instance_groups: tuple[str, ...] = ()
    slots: int = 0


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file's content from Jupyter's runtime folder."""

    url: str
    base_url: str
    pid: int
    token: str = ""
    sock: str = ""
    root_dir: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """Holds a server's address and token. `found` is how it was found, for messages."""

    url: str
    token: str
    found: str
    local: bool


def connect(
    url: str | None = None, token: str | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[Server, ServerInfo]:
    """Return the server to use and its description.

    The address may be copied from a browser, with `/lab` and `?token=…`.

    Raises:
        ServerUnreachable: no server found, or the given one does not answer.
        NotAllowed: the given server does not accept the token.
    """
    if given := _given(url, token, environ):
        return given, probe(given)
    tried: list[str] = []
    for server in _own(token, environ):
        try:
            return server, probe(server)
        except EdtError as refused:
            tried.append(f"{server.found}, {server.url}: {refused.message}")
    return _only_running(token, tried)


def probe(server: Server) -> ServerInfo:
    """Return the description of `server`. ServerUnreachable when it runs without jupyter-edt."""
    connection = Connection(server.url, server.token, retries=0, timeout=PROBE_TIMEOUT)
    try:
        answer = connection.json("GET", "")
        return msgspec.convert(answer, ServerInfo)
    except NotFound:
        raise ServerUnreachable(
            f"The server at {server.url} runs without jupyter-edt.",
            hint="Install jupyter-edt beside it and start it again; `jupyter server extension list` lists it.",
            url=server.url,
        ) from None
    except msgspec.ValidationError as wrong:
        raise ServerUnreachable(
            f"The server at {server.url} speaks another version of jupyter-edt ({wrong}).",
            hint="Install the same version on both sides.",
            url=server.url,
        ) from None
    finally:
        connection.close()


def chosen_among(server: Server) -> str:
    """Return which server was taken because of the current folder, and which others run. "" where none was in doubt."""
    others = [each.url for each in running_servers() if not each.sock and not _same(each.url, server.url)]
    if server.found != _OF_CHECKOUT or not others:
        return ""
    return (
        f"This is {server.found}, {server.url}. Beside it runs {', '.join(dict.fromkeys(others))}: "
        "name that one with EDT_URL or --url, or call edt in another folder."
    )


def running_servers(folder: Path | None = None) -> list[RunningServer]:
    """Return the Jupyter Servers of this user on this machine, newest first. Files of dead servers are kept.

    With `folder` these are the servers with that runtime folder.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    found = []
    for path in (folder or Path(jupyter_runtime_dir())).glob("jpserver-*.json"):
        try:
            data, age = path.read_bytes(), path.stat().st_mtime
            server = msgspec.json.decode(data, type=RunningServer)
        except (OSError, msgspec.DecodeError):
            continue  # deleted or still being written: then it is not a server to use either
        # The file of a killed server stays behind. Without /proc, its pid cannot be checked.
        if Path(f"/proc/{server.pid}").exists() or not Path("/proc/self").exists():
            found.append((age, server))
    return [server for _, server in sorted(found, key=lambda pair: pair[0], reverse=True)]


def clean_url(url: str) -> tuple[str, str]:
    """Return (`scheme://host:port/base/`, token or "") for an address, which may be copied from a browser."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServerUnreachable(
            f"{url!r} is not the address of a server.", hint="It looks like http://127.0.0.1:8888/?token=…"
        )
    segments = [segment for segment in parts.path.split("/") if segment]
    for page in _PAGES:
        words = page.split("/")
        for at in range(len(segments)):
            named = at > 0 and segments[at - 1] in _PREFIXES
            if segments[at : at + len(words)] == words and not named:
                segments = segments[:at]
                break
    base = "/" + "".join(f"{segment}/" for segment in segments)
    token = parse_qs(parts.query).get("token", [""])[0]
    return urlunsplit((parts.scheme, parts.netloc, base, "", "")), token


def _given(url: str | None, token: str | None, environ: Mapping[str, str]) -> Server | None:
    """Return the server named by the arguments or EDT_URL, None when they name none."""
    found = "the address given"
    if url is None and environ.get("EDT_URL"):
        url, found = environ["EDT_URL"], "EDT_URL"
    if url is None:
        return None
    address, inside = clean_url(url)
    known = next((s for s in running_servers() if _same(s.url, address)), None)
    chosen = token or inside or environ.get("EDT_TOKEN") or (known.token if known else "")
    if not chosen and environ.get("JUPYTERHUB_SERVICE_PREFIX") == urlsplit(address).path:
        chosen = environ.get("JUPYTERHUB_API_TOKEN", "")
    return Server(address, chosen, found, is_loopback(address) or known is not None)


def _own(token: str | None, environ: Mapping[str, str]) -> Iterator[Server]:
    """Yield the servers that this process may belong to, by its parent's pid, the Hub's variables or its folder."""
    hub_prefix = environ.get("JUPYTERHUB_SERVICE_PREFIX", "")
    hub_token = environ.get("JUPYTERHUB_API_TOKEN", "")
    token = token or environ.get("EDT_TOKEN")
    parent, terminal = environ.get("JPY_PARENT_PID", ""), environ.get("JUPYTER_SERVER_URL", "")
    known = [server for server in running_servers() if not server.sock] if parent or terminal else []
    # The kernel first: a server that was started in another one's terminal hands that variable on to its kernels.
    by_pid = [(server, "kernel") for server in known if parent == str(server.pid)]
    by_url = [(server, "terminal") for server in known if terminal and _same(server.url, terminal)]
    for server, what in (*by_pid, *by_url):
        # A Hub's single-user server has no token. It accepts the Hub's.
        own = server.token or (hub_token if server.base_url == hub_prefix else "")
        yield Server(server.url, token or own, f"the server of this {what}", True)
    if hub_prefix:
        service = urlsplit(environ.get("JUPYTERHUB_SERVICE_URL") or "http://127.0.0.1:8888")
        host = service.hostname or ""
        # The Hub's variable holds the address that the server binds to, and 0.0.0.0 is no address to connect to.
        host = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host
        url = urlunsplit((service.scheme or "http", f"{host}:{service.port or 8888}", hub_prefix, "", ""))
        yield Server(url, token or hub_token, "JupyterHub's variables", is_loopback(url))
    for server in running_servers(lab) if (lab := _lab_runtime()) else []:
        yield Server(server.url, token or server.token, _OF_CHECKOUT, True)


def _lab_runtime() -> Path | None:
    """Return the runtime folder of the `make lab` whose checkout contains the current folder, None without one."""
    with contextlib.suppress(FileNotFoundError):  # the current folder itself may be gone
        here = Path.cwd()
        for outer in (here, *here.parents):
            # Above may be another user's folder, and a server there must not get this user's token and code.
            with contextlib.suppress(OSError):
                if (outer / LAB_RUNTIME).stat().st_uid == os.geteuid():
                    return outer / LAB_RUNTIME
    return None


def _only_running(token: str | None, tried: list[str]) -> tuple[Server, ServerInfo]:
    answering: list[tuple[Server, ServerInfo]] = []
    for running in running_servers():
        if running.sock:
            tried.append(f"pid {running.pid} listens on a Unix socket, which is not supported")
            continue
        server = Server(running.url, token or running.token, f"the running server with pid {running.pid}", True)
        try:
            answering.append((server, probe(server)))
        except EdtError as refused:
            tried.append(f"{server.found}, {server.url}: {refused.message}")
    if len(answering) == 1:
        return answering[0]
    if answering:
        urls = ", ".join(server.url for server, _ in answering)
        raise ServerUnreachable(
            f"{len(answering)} servers answer: {urls}.", hint="Name one with EDT_URL, --url or Client(url=…)."
        )
    looked = "; ".join(dict.fromkeys(tried)) or "no Jupyter Server of yours runs on this machine"
    raise ServerUnreachable(
        f"No jupyter-edt server found ({looked}).",
        hint=f"Start one with: {how_to_start()} — or name one with EDT_URL and EDT_TOKEN. Trainings go on without it.",
    )


def _same(left: str, right: str) -> bool:
    """Return whether two addresses have the same host, port and base_url. All loopback names count as equal."""
    a, b = urlsplit(left), urlsplit(right)
    hosts = {"localhost" if is_loopback(u) else urlsplit(u).hostname for u in (left, right)}
    return len(hosts) == 1 and (a.port, a.path.rstrip("/")) == (b.port, b.path.rstrip("/"))
