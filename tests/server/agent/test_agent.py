"""A real agent with its guard, and below it real outposts and workers: who may command it, and what dies with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import SANDBOX, Slot
from edt_sdk.schemas.wire.link import WorkerHello
from edt_server.agent.guard import state_of
from edt_server.messaging import AgentConnection, ConversationLost, key_pair
from edt_server.supervisor.processes.memory import host_mark, memory_folder
from edt_server.system.processes import identify, is_alive, parent_of
from tests.sandboxes import needs_bubblewrap
from tests.waiting import LIMIT, until_async

pytestmark = pytest.mark.asyncio


def start_outpost(orders, number=1, attempt=None):
    attempt = orders.attempt if attempt is None else attempt
    return wire.StartOutpost(attempt=attempt, number=number, supervisor=identify(os.getpid()))


async def test_an_outpost_starts_a_worker_passes_on_what_it_says_and_ends_it(serve, supervise, orders):
    server = await serve(a=1)
    supervisor = await supervise(server, "a")
    orders = server.placed(orders, "a")
    supervisor.send(orders.job_id, start_outpost(orders))
    outpost = await supervisor.hear(wire.OutpostStarted)
    supervisor.send(orders.job_id, wire.StartProcess(worker=3, slot=Slot(id=5, host="a")))
    begun = await supervisor.hear(wire.ProcessStarted)
    said = await supervisor.hear(wire.ProcessSaid)
    assert isinstance(said.message, WorkerHello)
    assert (said.worker, said.message.worker, said.message.pid) == (3, 3, begun.pid)
    supervisor.send(orders.job_id, wire.LookAtWorkers(taking_part=()))
    (vital,) = (await supervisor.hear(wire.Seen)).vitals
    assert (vital.worker, vital.phase, vital.updates) == (3, 0, 0)
    supervisor.send(orders.job_id, wire.KillProcess(worker=3, patience=0.0))
    ended = await supervisor.hear(wire.ProcessExited)
    assert (ended.worker, ended.code, ended.signals) == (3, -signal.SIGKILL, (signal.SIGKILL,))
    supervisor.send(orders.job_id, start_outpost(orders, number=2, attempt=0))
    refused = await supervisor.hear(wire.OutpostStarted)
    assert (refused.pid, "attempt 1" in refused.why) == (0, True), "one of an older attempt ends no workers of a newer"
    supervisor.send(orders.job_id, wire.Farewell(over=True))
    assert (await supervisor.hear(wire.OutpostEnded)).code == 0
    assert not os.path.exists(f"/proc/{outpost.pid}")  # noqa: ASYNC240


async def test_workers_of_an_outpost_are_in_a_sandbox_that_ends_with_it(serve, supervise, orders):
    needs_bubblewrap()
    server = await serve(a=1, isolation=SANDBOX)
    supervisor = await supervise(server, "a")
    orders = server.placed(orders, "a")
    supervisor.send(orders.job_id, start_outpost(orders))
    outpost = await supervisor.hear(wire.OutpostStarted)
    supervisor.send(orders.job_id, wire.StartProcess(worker=3, slot=Slot(id=5, host="a")))
    worker = await supervisor.hear(wire.ProcessStarted)
    assert isinstance((await supervisor.hear(wire.ProcessSaid)).message, WorkerHello)
    seen = Path(f"/proc/{worker.pid}/root{orders.data_dir}")
    assert sorted(os.listdir(seen)) == ["jobs", "results"]
    assert os.listdir(seen / "jobs") == [orders.job_id]
    os.kill(outpost.pid, signal.SIGKILL)
    await supervisor.hear(wire.OutpostEnded)
    await until_async(lambda: not os.path.exists(f"/proc/{worker.pid}"))


async def test_an_outpost_waits_for_the_orders_of_its_job(serve, supervise, orders):
    server = await serve(a=1)
    supervisor = await supervise(server, "a")
    supervisor.send(orders.job_id, start_outpost(orders))
    # Another job's outpost is started meanwhile: the agent has read both messages by then.
    other = server.placed(msgspec.structs.replace(orders, job_id=f"{orders.job_id}-other"), "a")
    supervisor.send(other.job_id, start_outpost(other))
    job, message = await supervisor.connection.receive()
    assert (job, type(message)) == (other.job_id, wire.OutpostStarted)
    server.placed(orders, "a")
    job, message = await supervisor.connection.receive()
    assert (job, type(message), message.pid > 0) == (orders.job_id, wire.OutpostStarted, True)


async def test_an_outpost_is_refused_to_a_host_that_is_not_the_jobs_home(serve, supervise, orders):
    server = await serve(a=1, b=1, c=1)
    await server.connected("a", "b", "c")
    # A host knows the other hosts of its jobs alone, so both have another job.
    server.placed(msgspec.structs.replace(orders, job_id=f"{orders.job_id}-other"), "a", home="b")
    orders = server.placed(orders, "a", home="c")
    stranger = await supervise(server, "a", of="b")
    stranger.send(orders.job_id, start_outpost(orders))
    refused = await stranger.hear(wire.OutpostStarted)
    assert (refused.pid, refused.why) == (0, "the job's supervisor is on another host")
    home = await supervise(server, "a", of="c")
    home.send(orders.job_id, start_outpost(orders))
    assert (await home.hear(wire.OutpostStarted)).pid
    # What the outpost is told comes from the one that it serves, and from nobody else.
    stranger.send(orders.job_id, wire.Farewell(over=True))
    stranger.send(orders.job_id, start_outpost(orders, number=2))
    assert (await stranger.hear(wire.OutpostStarted)).pid == 0
    home.send(orders.job_id, wire.LookAtWorkers(taking_part=()))
    assert (await home.hear(wire.Seen)).vitals == ()


async def test_with_the_agent_everything_below_it_is_killed_and_the_next_finds_no_memory(serve, supervise, orders):
    server = await serve(a=1)
    supervisor = await supervise(server, "a")
    orders = server.placed(orders, "a")
    supervisor.send(orders.job_id, start_outpost(orders))
    outpost = identify((await supervisor.hear(wire.OutpostStarted)).pid)
    supervisor.send(orders.job_id, wire.StartProcess(worker=0, slot=Slot(id=0, host="a")))
    worker = identify((await supervisor.hear(wire.ProcessStarted)).pid)
    await supervisor.hear(wire.ProcessSaid)
    memory = Path(memory_folder(orders.job_id, host=host_mark("a", server.runtime)))
    (memory / "training-0.0").touch()
    lost = supervisor.address.identity
    guard = identify(parent_of(lost.pid))
    os.kill(lost.pid, signal.SIGKILL)
    with pytest.raises(ConversationLost):
        await supervisor.hear(type(None))
    await until_async(lambda: not is_alive(guard))
    assert not is_alive(outpost)
    assert not is_alive(worker)
    await until_async(lambda: (found := server.identity("a")) is not None and found != lost)
    assert not os.path.exists(memory)  # noqa: ASYNC240


async def test_workers_are_killed_with_their_outpost(serve, supervise, orders):
    server = await serve(a=1)
    supervisor = await supervise(server, "a")
    orders = server.placed(orders, "a")
    supervisor.send(orders.job_id, start_outpost(orders))
    outpost = await supervisor.hear(wire.OutpostStarted)
    supervisor.send(orders.job_id, wire.StartProcess(worker=0, slot=Slot(id=0, host="a")))
    worker = identify((await supervisor.hear(wire.ProcessSaid)).message.pid)
    os.kill(outpost.pid, signal.SIGKILL)
    assert (await supervisor.hear(wire.OutpostEnded)).code == -signal.SIGKILL
    await until_async(lambda: not is_alive(worker))
    supervisor.send(orders.job_id, start_outpost(orders, number=2))
    assert (await supervisor.hear(wire.OutpostStarted)).pid


async def test_who_does_not_know_the_key_is_not_heard(serve, supervise, orders):
    server = await serve(a=1)
    known = await supervise(server, "a")
    orders = server.placed(orders, "a")
    public, secret = key_pair()
    stranger = msgspec.structs.replace(known.address, client_public=public, client_secret=secret)
    unknown = AgentConnection(known.context, stranger)
    unknown.send(orders.job_id, start_outpost(orders))
    with pytest.raises(ConversationLost):
        async with asyncio.timeout(LIMIT):
            await unknown.receive()
    known.send(orders.job_id, start_outpost(orders))
    assert (await known.hear(wire.OutpostStarted)).pid
    for file in ("a.json", "a.orders"):
        assert (server.addresses / file).stat().st_mode & 0o777 == 0o600
    await unknown.close()


async def test_one_that_is_retired_ends_when_nothing_runs_below_it(serve, supervise, orders):
    first = await serve(a=1)
    supervisor = await supervise(first, "a")
    orders = first.placed(orders, "a")
    supervisor.send(orders.job_id, start_outpost(orders))
    await supervisor.hear(wire.OutpostStarted)
    agent = supervisor.address.identity
    await first.stop()
    second = await serve()
    second.fleet.attempts.adopt(orders)
    second.fleet.attempts.may_span(orders.job_id, ["a"])  # as supervision does for the slots of the job
    await second.connected("a")
    assert second.fleet.there == () or all(host.name != "a" for host in second.fleet.there)
    supervisor.send(orders.job_id, wire.LookAtWorkers(taking_part=()))
    await supervisor.hear(wire.Seen)
    assert is_alive(agent)
    supervisor.send(orders.job_id, wire.Farewell(over=True))
    await until_async(lambda: not is_alive(agent))
    await until_async(lambda: not (second.addresses / "a.json").exists())
    assert second.fleet.standing() == ()


async def test_a_stopped_agent_is_ended_by_its_guard(serve, supervise):
    server = await serve(a=1)
    await server.connected("a")
    agent = server.identity("a")
    guard = identify(parent_of(agent.pid))
    await server.stop()  # it has no part in this
    os.kill(agent.pid, signal.SIGSTOP)
    await until_async(lambda: state_of(agent.pid) in ("T", "t", ""))
    await until_async(lambda: not is_alive(agent))
    await until_async(lambda: not is_alive(guard))


async def test_what_is_no_message_does_not_end_it(serve, supervise, orders):
    server = await serve(a=1)
    supervisor = await supervise(server, "a")
    orders = server.placed(orders, "a")
    raw = supervisor.connection._conversation.socket
    for frames in (
        [b"job", json.dumps({"type": "Nonsense"}).encode()],
        [b"one frame"],
        [b"job", b"{", b"more", b"frames", b"than", b"any"],
        [b"\xff", wire.encode(start_outpost(orders))],
        [orders.job_id.encode(), wire.encode(wire.PutFile(name="../x", offset=0, last=True)), b"too early"],
        [b"other", wire.encode(wire.Farewell(over=True))],
    ):
        await raw.send_multipart(frames)
    supervisor.send(orders.job_id, start_outpost(orders))
    assert (await supervisor.hear(wire.OutpostStarted)).pid


async def test_a_supervisor_gives_its_host_files_of_the_job_alone(serve, supervise, orders):
    server = await serve(a=1)
    supervisor = await supervise(server, "a")
    orders = server.placed(orders, "a")
    supervisor.send(orders.job_id, start_outpost(orders))
    await supervisor.hear(wire.OutpostStarted)
    put = [("training-0.payload", 0, False, b"one "), ("training-0.payload", 4, True, b"two")]
    put += [(name, 0, True, b"x") for name in ("../other/x", "a/../../other/x", "launch.json", "..")]
    whys = []
    for name, offset, last, data in put:
        supervisor.send(orders.job_id, wire.PutFile(name=name, offset=offset, last=last), data)
        whys.append((await supervisor.hear(wire.FilePut)).why)
    assert [bool(why) for why in whys] == [False, False, True, True, True, True]
    folder = server.settings.data_dir / "jobs" / orders.job_id
    assert (folder / "training-0.payload").read_bytes() == b"one two"
    assert not (server.settings.data_dir / "jobs" / "other").exists()


async def test_files_that_are_given_while_no_outpost_runs_are_not_taken(serve, supervise, orders):
    server = await serve(a=1)
    supervisor = await supervise(server, "a")
    orders = server.placed(orders, "a")
    supervisor.send(orders.job_id, wire.PutFile(name="file", offset=0, last=True), b"x")
    supervisor.send(orders.job_id, start_outpost(orders))
    await supervisor.hear(wire.OutpostStarted)
    assert not (server.settings.data_dir / "jobs" / orders.job_id / "file").exists()
