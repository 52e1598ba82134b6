"""The server and the agents of its machine: found again, replaced when they die, given up when they are not named."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal

import pytest

from edt_sdk.schemas.hosts import HostState
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import SANDBOX
from edt_server.fleet import HostLost
from edt_server.system.processes import is_alive
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


def preferring(*names):
    async def preferred():
        return names

    return preferred


async def test_the_next_server_finds_the_agents_and_gives_up_those_it_does_not_name(serve):
    first = await serve(a=2, b=1)
    assert [(host.name, host.offers) for host in first.fleet.there] == [("a", 2), ("b", 1)]
    await first.connected("a", "b")
    a, b = first.identity("a"), first.identity("b")
    await first.stop()
    assert is_alive(a)
    second = await serve(b=1, c=1)
    assert [host.name for host in second.fleet.there] == ["b", "c"]
    await second.connected("b", "c")
    assert second.identity("b") == b
    await until_async(lambda: not is_alive(a))
    await until_async(lambda: [each.name for each in second.fleet.standing()] == ["b", "c"])
    assert await second.fleet.place(preferring("a", "c")) == "c"
    assert await second.fleet.place(preferring()) in ("b", "c")
    assert second.changes == [], "the slots were there all along"
    await second.stop()
    assert await second.fleet.place(preferring("b")) is None


async def test_an_agent_that_dies_is_replaced_and_its_host_is_away_meanwhile(serve):
    server = await serve(a=1, b=1)
    await server.connected("a", "b")
    before = server.identity("a")
    os.kill(before.pid, signal.SIGKILL)
    await until_async(lambda: server.changes == [["b"], ["a", "b"]])
    await server.connected("a")
    assert server.identity("a") != before
    assert {each.state for each in server.fleet.standing()} == {HostState.UP}


async def test_a_host_without_bubblewrap_offers_nothing_and_says_what_to_install(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    server = await serve(a=1, isolation=SANDBOX)
    await server.connected("a")
    assert server.fleet.there == ()
    (view,) = server.fleet.standing()
    assert view.state is HostState.UP
    assert view.why.startswith("It offers no slots. A sandbox cannot be started: there is no bwrap on this machine. ")
    assert "apt-get install bubblewrap" in view.why


async def test_what_is_asked_of_a_host_that_is_not_there_fails(serve, orders):
    server = await serve(a=1)
    with pytest.raises(HostLost):
        await server.fleet.attempts.start_supervisor(server.placed(orders, home="b"))
    await server.connected("a")
    agent = server.identity("a")
    os.kill(agent.pid, signal.SIGSTOP)
    # Its guard ends it: an answer is not waited for for ever.
    with pytest.raises(HostLost):
        await server.fleet.attempts.start_supervisor(server.placed(orders, home="a"))
    assert not is_alive(agent)


async def test_an_agent_of_another_version_is_replaced_and_it_is_said(serve, caplog):
    first = await serve(a=1, b=1)
    await first.connected("a", "b")
    before = {name: first.identity(name) for name in "ab"}
    await first.stop()
    for name in "ab":
        # As an earlier version may have written it: another number, other fields.
        path = first.addresses / f"{name}.json"
        address = json.loads(path.read_bytes())
        old = {"protocol": 0, "socket": "/run/agent", "identity": address["identity"]}
        path.write_text(json.dumps(old))
    # The agent of an earlier version does not dial this server.
    (first.settings.control_dir / "server.json").unlink()
    with caplog.at_level(logging.WARNING):
        second = await serve(a=1)
        await until_async(lambda: not is_alive(before["a"]))
        await second.connected("a")
    assert second.identity("a") != before["a"]
    ours = wire.AGENT_PROTOCOL
    assert f"agent of host a is of another version (it speaks protocol 0, this server {ours})" in caplog.text
    assert "go on from their last checkpoints" in caplog.text
    await until_async(lambda: not is_alive(before["b"]))  # not named any more: it could not be asked to retire


async def test_a_supervisor_is_started_ends_and_is_started_again(serve, orders):
    server = await serve(a=1)
    await server.connected("a")
    # Nothing answers at its control file, so it waits for a server.
    orders = server.placed(orders, home="a")
    identity = await server.fleet.attempts.start_supervisor(orders)
    assert is_alive(identity)
    gone = asyncio.create_task(server.fleet.attempts.supervisor_gone(orders.job_id, orders.attempt))
    await asyncio.sleep(0)
    assert not gone.done()
    os.kill(identity.pid, signal.SIGKILL)
    await asyncio.wait_for(gone, 180)
    assert not is_alive(identity)


async def test_the_next_server_knows_which_supervisors_still_run(serve, orders):
    first = await serve(a=1)
    await first.connected("a")
    orders = first.placed(orders, home="a")
    identity = await first.fleet.attempts.start_supervisor(orders)
    await first.stop()
    second = await serve(a=1)
    second.fleet.attempts.adopt(orders)
    gone = asyncio.create_task(second.fleet.attempts.supervisor_gone(orders.job_id, orders.attempt))
    await second.connected("a")
    assert (orders.job_id, orders.attempt) in second.fleet._hosts["a"].below
    assert not gone.done()
    assert is_alive(identity)
    os.kill(second.identity("a").pid, signal.SIGKILL)
    await asyncio.wait_for(gone, 180)
    await until_async(lambda: not is_alive(identity))


async def test_an_attempt_that_the_server_does_not_know_is_ended(serve, orders):
    first = await serve(a=1)
    await first.connected("a")
    identity = await first.fleet.attempts.start_supervisor(first.placed(orders, home="a"))
    await first.stop()
    second = await serve(a=1)
    await second.connected("a")
    await until_async(lambda: not is_alive(identity))
