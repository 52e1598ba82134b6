"""The supervisor's process, from its command line to its end: with orders at once, or waiting for them.

The zygote is started before anything else, since it takes longest. What is supervised, and how, is `main.py`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

import msgspec

from edt_sdk.schemas.wire.control import Launch
from edt_server.supervisor.main import Supervisor
from edt_server.supervisor.processes.orphans import adopt_orphans
from edt_server.supervisor.processes.waiting import await_orders
from edt_server.supervisor.processes.zygote import ZygoteProcess
from edt_server.supervisor.programs.environment import zygote_environment
from edt_server.supervisor.programs.programs import zygote_environment_of


def main(argv: list[str]) -> int:
    """Run a supervisor from its orders; the exit code is 0 when the job is over, however it ended.

    With `--wait <interpreter> <threads>` it first makes everything ready for a job of that interpreter with that many
    threads a slot, and waits for the path of the orders on stdin, a socket. When that closes before, it ends.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    umask = os.umask(0o077)
    adopt_orphans()
    zygote: ZygoteProcess | None = None
    match argv[1:]:
        case ["--wait", interpreter, threads]:
            zygote = ZygoteProcess(interpreter, zygote_environment(os.environ, int(threads)))
            path = await_orders(zygote)
            if path is None:
                zygote.end()
                return 0
            orders = _read(path)
        case [path]:
            orders = _read(path)
            # Everything else is ready long before it is.
            with contextlib.suppress(OSError):  # said when it is asked for
                zygote = ZygoteProcess(orders.interpreter, zygote_environment_of(orders))
        case _:
            print("usage: python -m edt_server.supervisor <launch.json>", file=sys.stderr)
            return 2
    asyncio.run(_run(orders, umask, zygote))
    return 0


def _read(path: str) -> Launch:
    return msgspec.json.decode(Path(path).read_bytes(), type=Launch)


async def _run(orders: Launch, umask: int, zygote: ZygoteProcess | None) -> None:
    await Supervisor(orders, umask=umask, zygote=zygote).run()
