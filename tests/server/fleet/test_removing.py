"""Hosts that are drained and removed by people, and where supervisors are placed meanwhile."""

from __future__ import annotations

import asyncio
import json

import pytest

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.hosts import HostState
from edt_sdk.schemas.wire import agent as wire
from tests.server.fleet.machines import Machine, Server, joined
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


async def test_a_host_that_drains_offers_nothing_until_it_may_again(server, tmp_path):
    await joined(server)
    await server.fleet.follow()
    await server.fleet.drain("a")
    assert (server.view("a").state, server.fleet.there) == (HostState.DRAINING, ())
    follower = await Server(tmp_path / "server").open()
    assert follower.fleet.there == (), "the next server goes on with it"
    await follower.fleet.stop()
    await server.fleet.drain("a", False)
    assert server.view("a").state is HostState.UP
    await until_async(lambda: server.changes == [["a"], [], ["a"]])


async def test_a_host_that_drains_keeps_what_runs_there(server, placed):
    machine = await joined(server)
    starting = asyncio.create_task(server.fleet.attempts.start_supervisor(placed))
    await until_async(lambda: machine.got(wire.Prepare))
    await server.fleet.drain("a")
    machine.say(wire.SupervisorStarted(job=placed.job_id, attempt=1, identity=machine.hello().identity))
    await starting


async def test_a_host_that_will_be_taken_away_gives_up_its_slots(server):
    machine = await joined(server)
    assert not server.fleet.draining("a")
    machine.say(wire.HostNotice(seconds=120.0, why="The machine is reclaimed."))
    assert server.fleet.draining("a")
    assert server.fleet.there == ()


@pytest.mark.parametrize("verb", ["drain", "remove"])
async def test_a_host_that_there_is_not(server, verb):
    await joined(server)
    with pytest.raises(NotFound) as missing:
        await getattr(server.fleet, verb)("z")
    assert "a" in missing.value.hint


async def test_a_removed_host_is_told_and_its_key_is_refused(server):
    machine = await joined(server)
    assert (server.settings.control_dir / "hosts" / "a.json").exists()
    await server.fleet.follow()
    await server.fleet.remove("a")
    assert machine.got(wire.Retire) == [wire.Retire(at_once=True)]
    assert server.view("a") is None
    assert server.channel.owner_of(machine.public) is None
    assert server.changes[-1] == []
    assert not (server.settings.control_dir / "hosts" / "a.json").exists()
    assert not list(server.settings.control_dir.glob("fleet/hosts/*"))


async def test_what_a_removed_host_still_says_is_refused(server):
    machine = await joined(server)
    owner = server.channel.owner_of(machine.public)
    await server.fleet.remove("a")
    server.fleet.receive(owner, machine.peer, wire.encode(machine.hello()), b"")
    assert "was removed" in machine.got(wire.HostRefused)[-1].why
    assert server.fleet.there == ()


async def test_a_removed_host_is_not_taken_for_the_next_one_of_its_name(server):
    former = await joined(server)
    owner = server.channel.owner_of(former.public)
    await server.fleet.remove("a")
    present = await joined(server)
    assert present.name == "a"
    # ZeroMQ tells of a connection that is still open by what its key was admitted as.
    server.fleet.receive(owner, former.peer, wire.encode(former.hello()), b"")
    assert isinstance(former.got(wire.HostRefused)[-1], wire.HostRefused)
    assert present.beat() == [wire.Heard()]


@pytest.mark.parametrize("member", [False, True])
async def test_a_host_with_jobs_is_removed_by_force_alone(server, placed, member):
    await joined(server)
    await joined(server, "b")
    server.fleet.attempts.adopt(placed)
    if member:
        server.fleet.may_span(placed.job_id, ["b"])
    name = "b" if member else "a"
    with pytest.raises(Conflict) as refused:
        await server.fleet.remove(name)
    assert placed.job_id in refused.value.message
    assert f"edt host drain {name}" in refused.value.hint
    assert server.view(name).state is HostState.UP
    await server.fleet.remove(name, force=True)
    assert server.view(name) is None


async def test_a_host_whose_jobs_are_over_is_removed(server, placed):
    await joined(server)
    server.fleet.attempts.adopt(placed)
    server.fleet.attempts.forget(placed.job_id)
    await server.fleet.remove("a")
    assert server.view("a") is None


async def test_parts_of_this_machine_are_not_removed(tmp_path):
    server = await Server(tmp_path / "server", local_hosts={"a": 1}).open()
    with pytest.raises(Conflict) as refused:
        await server.fleet.remove("a", force=True)
    assert "c.EdtApp.local_hosts" in refused.value.hint
    await server.fleet.stop()


async def test_a_supervisor_waits_for_a_host_that_it_prefers(server):
    async def preferred():
        return ["b", "a"]

    placing = asyncio.create_task(server.fleet.place(preferred))
    await asyncio.sleep(0)
    assert not placing.done()
    await joined(server, "c")
    await asyncio.sleep(0)
    assert not placing.done()
    await joined(server)
    assert await asyncio.wait_for(placing, 60) == "a"
    await joined(server, "b")
    assert await server.fleet.place(preferred) == "b"
    placing = asyncio.create_task(server.fleet.place(lambda: asyncio.sleep(0, ["z"])))
    await asyncio.sleep(0)
    await server.fleet.stop()
    assert await asyncio.wait_for(placing, 60) is None


async def test_a_forgotten_job_is_forgotten_on_its_hosts(server, placed):
    home, member, other = await joined(server), await joined(server, "b"), await joined(server, "c")
    starting = asyncio.create_task(server.fleet.attempts.start_supervisor(placed))
    await until_async(lambda: home.got(wire.Prepare))
    server.fleet.may_span(placed.job_id, ["b"])
    await until_async(lambda: member.got(wire.Prepare))
    starting.cancel()
    server.fleet.attempts.forget(placed.job_id)
    server.fleet.attempts.forget(placed.job_id)
    for machine in (home, member):
        assert machine.got(wire.Forget) == [wire.Forget(job=placed.job_id, owner="ann")]
    assert other.got(wire.Forget) == []


async def test_a_host_that_was_away_forgets_a_job_that_is_over_when_it_is_back(server, placed):
    machine = await joined(server)
    server.fleet.attempts.adopt(placed)
    machine.connect(jobs=((placed.job_id, "ann"), ("over", "ann")))
    assert machine.got(wire.Forget) == [wire.Forget(job="over", owner="ann")]
    machine.close()
    server.fleet.attempts.forget(placed.job_id)
    machine.connect(jobs=((placed.job_id, "ann"),))
    assert machine.got(wire.Forget) == [wire.Forget(job=placed.job_id, owner="ann")]


async def test_supervisors_of_this_machine_find_the_agents(server):
    machine = await joined(server)
    address = json.loads((server.settings.control_dir / "hosts" / "a.json").read_text())
    assert (address["host"], address["public_key"], address["shared"]) == ("a", machine.public, False)
    assert (address["client_public"], address["client_secret"]) == server.keys


async def test_a_machine_that_comes_again_under_another_name_is_another_host(server):
    machine = await joined(server)
    await server.fleet.remove("a")
    again = Machine(server, "a")
    again.public = machine.public
    assert again.join(server.fleet.make_token().token) == wire.HostJoined(host="a")
    assert isinstance(again.connect(), wire.HostWelcome)
