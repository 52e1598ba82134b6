"""What an agent starts is forked from its template, and is nevertheless its own child, which ends with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

import edt_sdk
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import Slot
from edt_sdk.schemas.wire.zygote import ZYGOTE_OPTION
from edt_server.system.processes import identify, is_alive
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


def another(orders, number):
    return msgspec.structs.replace(orders, job_id=f"{orders.job_id}-{number}")


async def zygote_of(process):
    """The zygote of a supervisor or an outpost that was forked with it, once its own program runs."""
    await until_async(lambda: ZYGOTE_OPTION in process.cmdline(), "the program of what was forked")
    arguments = process.cmdline()
    return psutil.Process(int(arguments[arguments.index(ZYGOTE_OPTION) + 2]))


async def supervising(server, orders):
    """The supervisor that the agent of host a forks for these orders, and its zygote."""
    orders = server.placed(orders, home="a")
    process = psutil.Process((await server.fleet.attempts.start_supervisor(orders)).pid)
    return process, await zygote_of(process)


def templates(server):
    """The templates of the agent of host a."""
    found = []
    for child in psutil.Process(server.identity("a").pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, and the agent will reap it
            if "edt_sdk.training.zygote" in child.cmdline():
                found.append(child.pid)
    return found


async def test_jobs_share_a_template_and_outlive_it_and_all_ends_with_the_agent(serve, supervise, orders):
    server = await serve(a=1)
    supervisor = await supervise(server, "a")
    agent = server.identity("a")
    (first, own), (second, others) = [await supervising(server, another(orders, number)) for number in range(2)]
    (template,) = templates(server)
    orders = server.placed(orders, "a")
    supervisor.send(
        orders.job_id, wire.StartOutpost(attempt=orders.attempt, number=1, supervisor=identify(os.getpid()))
    )
    outpost = psutil.Process((await supervisor.hear(wire.OutpostStarted)).pid)
    zygotes = [own, others, await zygote_of(outpost)]
    assert [each.ppid() for each in (first, second, outpost)] == [agent.pid] * 3
    assert [each.ppid() for each in zygotes] == [first.pid, second.pid, outpost.pid]
    assert templates(server) == [template]
    os.kill(template, signal.SIGKILL)
    await until_async(lambda: not psutil.pid_exists(template))
    supervisor.send(orders.job_id, wire.StartProcess(worker=0, slot=Slot(id=0, host="a")))
    worker = identify((await supervisor.hear(wire.ProcessSaid)).message.pid)
    third, _ = await supervising(server, another(orders, 3))
    (next_template,) = templates(server)
    assert next_template != template
    first.kill()
    await until_async(lambda: not psutil.pid_exists(first.pid), "the agent reaps what it has adopted")
    left = [second, third, outpost, *zygotes[1:], psutil.Process(next_template)]
    left = [worker, *(identify(each.pid) for each in left)]
    os.kill(agent.pid, signal.SIGKILL)
    await until_async(lambda: not any(map(is_alive, left)), "the end of all below the agent")


async def test_a_template_is_no_work_and_a_new_one_imports_what_was_installed_since(serve, orders, tmp_path):
    installed = tmp_path / "installed"
    shutil.copytree(Path(edt_sdk.__file__).parent, installed / "edt_sdk")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={installed} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    orders = msgspec.structs.replace(orders, interpreter=str(python))
    server = await serve(a=1)
    await server.connected("a")
    for number in range(2):
        await supervising(server, another(orders, number))
    (before,) = templates(server)
    os.utime(installed / "edt_sdk" / "__init__.py", (1.0, 1.0))
    await supervising(server, another(orders, 2))
    (after,) = templates(server)
    assert after != before
    # The next server does not know these attempts, nor this host: its agent ends them, and itself with the template.
    agent = server.identity("a")
    await server.stop()
    await serve()
    await until_async(lambda: not is_alive(agent) and not psutil.pid_exists(after), "the end of the agent")
