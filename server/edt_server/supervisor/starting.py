"""Run the supervisor's process from its command line to its exit: with orders, or as a spare that waits for orders.

The zygote is started first, because it takes longest, unless a template has forked it with this process (decision
045). `main.py` supervises.

A spare supervisor's stdin is a socket to the server. It reports there when the zygote is ready, and receives the path
of its orders in one line. Then it closes that socket, and its log is the job's. The socket closes when the server ends,
for whatever reason, and the spare then exits (decision 011).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import selectors
import socket
import sys
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.zygote import Ready, encode
from edt_server.supervisor.main import Supervisor
from edt_server.supervisor.processes.orphans import adopt_orphans
from edt_server.supervisor.processes.zygote import Zygote, ZygoteProcess
from edt_server.supervisor.programs.environment import zygote_environment
from edt_server.supervisor.programs.programs import zygote_environment_of

_LONGEST_PATH = 4096


def main(argv: list[str]) -> int:
    """Run a supervisor from its orders and return the exit code, 0 when the job is over, however it ended.

    With `--wait <interpreter> <threads>` it prepares for a job of that interpreter with that many threads per slot, and
    waits for the path of the orders on stdin, a socket. When the socket closes before that, it exits. Before all that,
    `--zygote` gives it the zygote that was forked with it.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    umask = os.umask(0o077)
    adopt_orphans()
    arguments = argv[1:]
    zygote = Zygote.inherited(arguments)
    match arguments:
        case ["--wait", interpreter, threads]:
            zygote = zygote or ZygoteProcess(interpreter, zygote_environment(os.environ, int(threads)))
            awaited = _await_orders(zygote, interpreter)
            if awaited is None:
                zygote.end()
                return 0
            orders = awaited
        case [path]:
            orders = _read(path)
            # Before the rest, which is ready long before the zygote. A failure is reported when the zygote is needed.
            with contextlib.suppress(OSError):
                zygote = zygote or ZygoteProcess(orders.interpreter, zygote_environment_of(orders))
        case _:
            print("usage: python -m edt_server.supervisor <launch.json>", file=sys.stderr)
            return 2
    asyncio.run(_run(orders, umask, zygote))
    return 0


def _read(path: str) -> Launch:
    return msgspec.json.decode(Path(path).read_bytes(), type=Launch)


async def _run(orders: Launch, umask: int, zygote: Zygote | None) -> None:
    await Supervisor(orders, umask=umask, zygote=zygote).run()


def _await_orders(zygote: Zygote, interpreter: str) -> Launch | None:
    """Return the orders, None when the server or the zygote is gone before they arrive.

    With the orders, this process has left the server: stdin is /dev/null, stdout and stderr are the job's log.
    """
    server = socket.socket(fileno=os.dup(0))
    with server, open(os.devnull, "rb") as nothing, selectors.DefaultSelector() as selector:
        # No other descriptor may hold the socket open, or the server's end would not be noticed.
        os.dup2(nothing.fileno(), 0)
        for source in (server, zygote.socket, zygote.ended):
            selector.register(source, selectors.EVENT_READ)
        path = b""
        while not path.endswith(b"\n"):
            ready = [key.fileobj for key, _ in selector.select()]
            if server in ready:
                try:
                    part = server.recv(_LONGEST_PATH)
                except ConnectionError:
                    return None
                if not part:
                    return None
                path += part
            elif zygote.ended in ready:
                print(f"The zygote of {interpreter} ended.\n{zygote.words()}", flush=True)
                return None
            else:
                answer = zygote.hear()
                if isinstance(answer, Ready):
                    try:
                        server.sendall(encode(answer))
                    except ConnectionError:
                        return None
                elif zygote.silent:
                    selector.unregister(zygote.socket)
    orders = _read(path.decode().rstrip("\n"))
    _enter_job(orders)
    return orders


def _enter_job(launch: Launch) -> None:
    """Take the job's folder and log, as a supervisor that is started with orders finds them."""
    paths = JobPaths(Path(launch.data_dir), launch.owner, launch.job_id)
    log = os.open(paths.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.chdir(paths.job_dir)
