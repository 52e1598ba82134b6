"""Run `python -m edt_server.serving <edge.json> <host> <port>`, which keeps an edge running. Port 0 is a free one.

The parent holds the lock of the data folder and the socket that HTTP comes to, and forks the edge. When the edge dies
the next one takes the same socket, where callers have waited in the meantime. uvicorn's `supervisors.Multiprocess` is
no such parent: its child outlives it, is started again without a pause when it dies at once, and has to import
everything again, where a fork answers within milliseconds.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec
import uvicorn

from edt_sdk.schemas.serving.edge_file import EdgeAddress
from edt_server.agent import guard
from edt_server.serving.app import make_app
from edt_server.serving.edge import Edge
from edt_server.system.private_files import write_private
from edt_server.system.processes import identify

log = logging.getLogger("edt_server.serving")
_ENDS = {signal.SIGTERM, signal.SIGINT}
_WATCHED = _ENDS | {signal.SIGCHLD}
# Seconds that requests have to end after SIGTERM, and after which the edge is killed.
_GRACE, _PATIENCE = 2, 5.0
# An edge that dies sooner than that is started after a pause, which doubles each time.
_SOON, _FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 0.1, 5.0
# Longer than clients keep a connection that they do not use, so that none sends on one that is just being closed.
_KEEP_ALIVE = 75
_BACKLOG = 2048


def main(argv: list[str]) -> int:
    """Keep an edge running until SIGTERM or SIGINT."""
    _, file, host, port = argv
    path = Path(file)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    if not _lock(path.with_name("edge.lock")):
        print(f"Another edge serves {path.parent}.", file=sys.stderr)
        return 1
    listener = _listen(host, int(port))
    # It stays when the edge has ended, for the port that the next one is given.
    write_private(path.with_name("edge-address.json"), msgspec.json.encode(_address(listener)))
    config = uvicorn.Config(
        make_app(Edge(path)),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        backlog=_BACKLOG,
    )
    # Imported before the fork, so that the next edge answers at once.
    config.load()
    config.get_loop_factory()
    if not _parent():
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def _lock(path: Path) -> bool:
    """Take the lock. It is held until the parent and the edge are gone."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as wrong:
        if not port:
            raise
        log.warning("port %d cannot be had (%s), a free one is taken", port, wrong)
        return socket.create_server((host, 0), family=family, backlog=_BACKLOG)


def _address(listener: socket.socket) -> EdgeAddress:
    host, port = listener.getsockname()[:2]
    # All addresses of this machine, for which this one stands.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    written = f"[{host}]" if ":" in host else host
    return EdgeAddress(url=f"http://{written}:{port}", port=port, identity=identify(os.getpid()))


def _parent() -> bool:
    """Return False in a new edge. Return True in the parent, after a signal to end and the end of the edge."""
    # Blocked, so that none is missed between two waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    own, pause = os.getpid(), 0.0
    while True:
        begun, edge = time.monotonic(), os.fork()
        if edge == 0:
            guard.die_with(own)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
            return False
        log.info("the edge runs, pid=%d", edge)
        while (status := _status(edge)) is None:
            if signal.sigwait(_WATCHED) in _ENDS:
                _end(edge)
                return True
        pause = _pause(pause, time.monotonic() - begun)
        log.warning("the edge has died (%d), the next one starts in %.1f s", status, pause)
        if signal.sigtimedwait(_ENDS, pause) is not None:
            return True


def _pause(before: float, lived: float) -> float:
    return 0.0 if lived > _SOON else min(max(2 * before, _FIRST_PAUSE), _LONGEST_PAUSE)


def _status(edge: int) -> int | None:
    pid, status = os.waitpid(edge, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def _end(edge: int) -> None:
    os.kill(edge, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while _status(edge) is None:
        if time.monotonic() > deadline:
            os.kill(edge, signal.SIGKILL)
        # With a limit: its SIGCHLD may have come before, together with the signal to end.
        signal.sigtimedwait({signal.SIGCHLD}, 0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
