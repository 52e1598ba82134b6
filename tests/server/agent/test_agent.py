"""A real agent with its guard, and below it real outposts and workers: who may command it, and what dies with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.asyncio

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import Slot
from edt_sdk.schemas.wire.link import WorkerHello
from edt_server.channel.launcher import write_orders
from edt_server.messaging import AgentConnection, ConversationLost, read_address
from edt_server.supervisor.processes.memory import forget_host, host_mark, memory_folder
from edt_server.system.processes import identify, is_alive
from edt_server.system.runtime import private_dir
from tests.waiting import LIMIT, until_async

pytestmark = pytest.mark.asyncio


@pytest.fixture
def start(tmp_path):
    """Starts agents by name; everything they leave is ended."""
    runtime = private_dir(tmp_path / "r")
    started = []

    def begin(name):
        orders = wire.AgentOrders(
            host=name,
            address_file=str(tmp_path / "hosts" / f"{name}.json"),
            runtime_dir=str(runtime),
            interface="127.0.0.1",
        )
        command = [sys.executable, "-P", "-m", "edt_server.agent", wire.encode(orders).decode(), str(runtime / name)]
        process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.terminate()
        process.wait()
    forget_host("a", runtime)


@pytest.fixture
def context():
    context = zmq.asyncio.Context()
    yield context
    context.destroy(linger=0)


async def connected(context, tmp_path, name):
    address = await until_async(lambda: read_address(tmp_path / "hosts", name))
    return AgentConnection(context, address)


async def hear(connection, kind):
    """The next message of a kind; others are left out."""
    async with asyncio.timeout(LIMIT):
        while True:
            _, message = await connection.receive()
            if isinstance(message, kind):
                return message


def outpost_order(orders, number=1):
    paths = write_orders(orders)
    paths.code_dir("").mkdir(parents=True, exist_ok=True)
    supervisor = identify(os.getpid())
    return wire.StartOutpost(
        launch_file=str(paths.launch_file), attempt=orders.attempt, number=number, supervisor=supervisor
    )


async def test_an_outpost_starts_a_worker_passes_on_what_it_says_and_ends_it(start, context, tmp_path, orders):
    start("a")
    connection = await connected(context, tmp_path, "a")
    connection.send(orders.job_id, outpost_order(orders))
    outpost = await hear(connection, wire.OutpostStarted)
    connection.send(orders.job_id, wire.StartProcess(worker=3, slot=Slot(id=5, host="a")))
    begun = await hear(connection, wire.ProcessStarted)
    said = await hear(connection, wire.ProcessSaid)
    assert isinstance(said.message, WorkerHello)
    assert (said.worker, said.message.worker, said.message.pid) == (3, 3, begun.pid)
    connection.send(orders.job_id, wire.LookAtWorkers(taking_part=()))
    (vital,) = (await hear(connection, wire.Seen)).vitals
    assert (vital.worker, vital.phase, vital.updates) == (3, 0, 0)
    connection.send(orders.job_id, wire.KillProcess(worker=3, patience=0.0))
    ended = await hear(connection, wire.ProcessExited)
    assert (ended.worker, ended.code, ended.signals) == (3, -signal.SIGKILL, (signal.SIGKILL,))
    late = msgspec.structs.replace(outpost_order(orders, number=2), attempt=0)
    connection.send(orders.job_id, late)
    refused = await hear(connection, wire.OutpostStarted)
    assert (refused.pid, "attempt 1" in refused.why) == (0, True)
    connection.send(orders.job_id, wire.Farewell(over=True))
    assert (await hear(connection, wire.OutpostEnded)).code == 0
    assert not os.path.exists(f"/proc/{outpost.pid}")  # noqa: ASYNC240
    await connection.close()


async def test_with_the_agent_everything_below_it_is_killed_and_the_next_finds_no_memory(
    start, context, tmp_path, orders
):
    guard = start("a")
    connection = await connected(context, tmp_path, "a")
    connection.send(orders.job_id, outpost_order(orders))
    outpost = identify((await hear(connection, wire.OutpostStarted)).pid)
    connection.send(orders.job_id, wire.StartProcess(worker=0, slot=Slot(id=0, host="a")))
    worker = identify((await hear(connection, wire.ProcessStarted)).pid)
    memory = Path(memory_folder(orders.job_id, host=host_mark("a", tmp_path / "r")))
    (memory / "training-0.0").touch()
    os.kill(connection.address.identity.pid, signal.SIGKILL)
    with pytest.raises(ConversationLost):
        await hear(connection, type(None))
    await asyncio.to_thread(guard.wait)
    assert not is_alive(outpost)
    assert not is_alive(worker)
    lost = connection.address
    await connection.close()
    start("a")
    await until_async(lambda: (found := read_address(tmp_path / "hosts", "a")) is not None and found != lost)
    assert not os.path.exists(memory)  # noqa: ASYNC240


async def test_workers_are_killed_with_their_outpost(start, context, tmp_path, orders):
    start("a")
    connection = await connected(context, tmp_path, "a")
    connection.send(orders.job_id, outpost_order(orders))
    outpost = await hear(connection, wire.OutpostStarted)
    connection.send(orders.job_id, wire.StartProcess(worker=0, slot=Slot(id=0, host="a")))
    worker = identify((await hear(connection, wire.ProcessSaid)).message.pid)
    os.kill(outpost.pid, signal.SIGKILL)
    assert (await hear(connection, wire.OutpostEnded)).code == -signal.SIGKILL
    await until_async(lambda: not is_alive(worker))
    connection.send(orders.job_id, outpost_order(orders, number=2))
    assert (await hear(connection, wire.OutpostStarted)).pid
    await connection.close()


async def test_who_does_not_know_the_key_is_not_heard(start, context, tmp_path):
    start("a")
    known = await connected(context, tmp_path, "a")
    public, secret = (part.decode() for part in zmq.curve_keypair())
    stranger = msgspec.structs.replace(known.address, client_public=public, client_secret=secret)
    unknown = AgentConnection(context, stranger)
    unknown.send("", wire.Ping())
    with pytest.raises(ConversationLost):
        async with asyncio.timeout(LIMIT):
            await unknown.receive()
    known.send("", wire.Ping())
    assert isinstance(await hear(known, wire.Pong), wire.Pong)
    assert (tmp_path / "hosts" / "a.json").stat().st_mode & 0o777 == 0o600
    await unknown.close()
    await known.close()


async def test_one_that_is_retired_ends_when_nothing_runs_below_it(start, context, tmp_path, orders):
    guard = start("a")
    connection = await connected(context, tmp_path, "a")
    connection.send(orders.job_id, outpost_order(orders))
    await hear(connection, wire.OutpostStarted)
    connection.send("", wire.Retire())
    connection.send(orders.job_id, wire.LookAtWorkers(taking_part=()))
    await hear(connection, wire.Seen)
    assert guard.poll() is None
    connection.send(orders.job_id, wire.Farewell(over=True))
    assert await asyncio.to_thread(guard.wait) == 0
    assert not (tmp_path / "hosts" / "a.json").exists()
    await connection.close()


async def test_a_stopped_agent_is_ended_by_its_guard(start, context, tmp_path):
    guard = start("a")
    connection = await connected(context, tmp_path, "a")
    os.kill(connection.address.identity.pid, signal.SIGSTOP)
    await asyncio.to_thread(guard.wait)
    assert not is_alive(connection.address.identity)
    await connection.close()


async def test_what_is_no_message_does_not_end_it(start, context, tmp_path):
    start("a")
    connection = await connected(context, tmp_path, "a")
    await connection._conversation.socket.send_multipart([b"job", json.dumps({"type": "Nonsense"}).encode()])
    await connection._conversation.socket.send(b"one frame")
    connection.send("", wire.Ping())
    assert isinstance(await hear(connection, wire.Pong), wire.Pong)
    await connection.close()
