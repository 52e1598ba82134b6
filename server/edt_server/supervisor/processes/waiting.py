"""A spare supervisor's life before its job: it waits beside its zygote, and ends when nobody needs it any more.

Its stdin is a socket to the server. It tells there when the zygote is ready and gets the path of its orders in a line;
from then on that socket is closed and its log is the job's. Whatever way the server ends, the socket ends with it.
"""

from __future__ import annotations

import os
import selectors
import socket
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import Launch
from edt_sdk.schemas.wire.paths import JobPaths
from edt_sdk.schemas.wire.zygote import Ready, encode
from edt_server.supervisor.processes.zygote import ZygoteProcess

_LONGEST_PATH = 4096


def await_orders(zygote: ZygoteProcess) -> str | None:
    """The path of the orders; None when the server or the zygote is gone before there are any.

    With the path, this process has left the server: stdin is /dev/null, stdout and stderr are the job's log.
    """
    server = socket.socket(fileno=os.dup(0))
    with server, open(os.devnull, "rb") as nothing, selectors.DefaultSelector() as selector:
        # Nobody else may hold it: its end has to be seen.
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
                print(f"The zygote of {zygote.interpreter} ended.\n{zygote.words()}", flush=True)
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
    orders = path.decode().rstrip("\n")
    _leave(orders)
    return orders


def _leave(orders: str) -> None:
    """Take the job's folder and log as a supervisor that is started for it finds them."""
    launch = msgspec.json.decode(Path(orders).read_bytes(), type=Launch)
    paths = JobPaths(Path(launch.data_dir), launch.owner, launch.job_id)
    log = os.open(paths.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.chdir(paths.job_dir)
