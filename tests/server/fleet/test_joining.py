"""How a machine becomes a host: by a token, once, under a name that no other host has."""

from __future__ import annotations

import socket

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.hosts import HostState
from edt_sdk.schemas.wire import agent as wire
from edt_sdk.schemas.wire.control import SANDBOX, Isolation
from edt_server.fleet.connection import SILENT
from edt_server.messaging import read_token
from tests.server.fleet.machines import Machine, Server, joined

pytestmark = pytest.mark.asyncio


async def test_a_machine_joins_and_is_up_once_it_has_greeted(server):
    machine = Machine(server)
    given = server.fleet.make_token()
    assert given.command == f"edt host join {given.token}"
    assert machine.join(given.token) == wire.HostJoined(host="a")
    assert server.view("a").state is HostState.STARTING
    assert server.fleet.there == ()
    welcome = machine.connect()
    assert welcome.outdated == ()
    assert 0 < welcome.beat < SILENT
    view = server.view("a")
    assert (view.state, view.cores, view.provider, view.address) == (HostState.UP, 4, "joined", "127.0.0.1")
    assert [(host.name, host.offers) for host in server.fleet.there] == [("a", 2)]


async def test_a_taken_name_gets_a_number(server):
    token = server.fleet.make_token(uses=5).token
    given = []
    for name in ("a", "a", "a", socket.gethostname(), "b"):
        machine = Machine(server, name)
        machine.join(token)
        given.append(machine.name)
    assert given == ["a", "a-2", "a-3", f"{socket.gethostname()}-2", "b"]


async def test_a_machine_whose_answer_was_lost_is_the_same_host(server):
    machine = Machine(server)
    token = server.fleet.make_token().token
    machine.join(token)
    assert machine.join(token, name="z") == wire.HostJoined(host="a"), "the token is used up, but it had been used here"
    assert [each.name for each in server.fleet.standing()] == ["a"]


@pytest.mark.parametrize("uses", [1, 3])
async def test_a_token_is_good_for_so_many_machines(server, uses):
    token = server.fleet.make_token(uses=uses).token
    for _ in range(uses):
        assert isinstance(Machine(server).join(token), wire.HostJoined)
    refused = Machine(server, "late").join(token)
    assert "used up" in refused.why
    assert "edt host token" in refused.hint
    assert server.view("late") is None


async def test_a_token_that_is_too_old_is_refused(server, clocks):
    token = server.fleet.make_token(seconds=60).token
    clocks.pass_time(61)
    assert "too old" in Machine(server).join(token).why
    assert server.fleet.standing() == ()


async def test_a_machine_of_another_version_is_refused_and_its_token_stays(server):
    token = server.fleet.make_token().token
    refused = Machine(server).join(token, protocol=wire.AGENT_PROTOCOL + 1)
    assert f"speaks protocol {wire.AGENT_PROTOCOL + 1} and the server {wire.AGENT_PROTOCOL}" in refused.why
    assert "same version" in refused.hint
    machine = Machine(server)
    assert isinstance(machine.join(token), wire.HostJoined)
    refused = machine.connect(protocol=wire.AGENT_PROTOCOL - 1)
    assert isinstance(refused, wire.HostRefused)
    assert server.fleet.there == ()


@pytest.mark.parametrize("name", ["", "../a", "a/b", "a:b"])
async def test_a_name_that_cannot_be_is_refused_and_the_token_stays(server, name):
    token = server.fleet.make_token().token
    assert "cannot be the name" in Machine(server, name).join(token).why
    assert isinstance(Machine(server).join(token), wire.HostJoined)


async def test_with_a_tokens_key_nothing_but_joining_is_possible(server):
    host = await joined(server)
    token = read_token(server.fleet.make_token().token)
    owner = server.channel.owner_of(token.public_key)
    sent = len(server.channel.sent)
    for message in (host.hello(), wire.SupervisorEnded(job="j", attempt=1, code=0)):
        server.fleet.receive(owner, host.peer, wire.encode(message), b"")
    server.fleet.receive(owner, host.peer, b"nonsense", b"")
    assert len(server.channel.sent) == sent


async def test_what_is_no_message_is_left_out(server):
    host = await joined(server)
    owner = server.channel.owner_of(host.public)
    for data in (b"", b"{", b'{"type": "Nonsense"}', b'{"type": "HostBeat"}'):
        server.fleet.receive(owner, host.peer, data, b"")
    assert host.beat() == [wire.Heard()]


async def test_the_next_server_knows_hosts_and_tokens(server, tmp_path):
    host = await joined(server)
    token = server.fleet.make_token(uses=2).token
    Machine(server, "b").join(token)
    follower = await Server(tmp_path / "server").open()
    assert follower.channel.owner_of(host.public).startswith("host:a:")
    assert [each.name for each in follower.fleet.there] == ["a"], "it was up, and counts as such until it is lost"
    late = Machine(follower, "c")
    assert late.join(token) == wire.HostJoined(host="c")
    assert "used up" in Machine(follower, "d").join(token).why
    await follower.fleet.stop()


async def test_a_machine_without_sandboxes_offers_no_slots_to_a_server_that_needs_them(server, tmp_path):
    strict = await Server(tmp_path / "strict", isolation=Isolation(kind=SANDBOX)).open()
    for each, offered in ((server, ["a"]), (strict, [])):
        host = Machine(each)
        host.join(each.fleet.make_token().token)
        host.connect(sandbox="There is no bwrap. Install it.")
        assert [there.name for there in each.fleet.there] == offered
    view = strict.view("a")
    assert (view.state, view.why) == (HostState.UP, "It offers no slots. There is no bwrap. Install it.")
    follower = await Server(tmp_path / "strict", isolation=Isolation(kind=SANDBOX)).open()
    assert follower.fleet.there == (), "nor to the next server, before it is heard"
    host.connect(sandbox="")
    assert [there.name for there in strict.fleet.there] == ["a"]
    for each in (strict, follower):
        await each.fleet.stop()


async def test_a_machine_of_before_there_were_sandboxes_on_hosts_gets_no_job(server, tmp_path):
    strict = await Server(tmp_path / "strict", isolation=Isolation(kind=SANDBOX)).open()
    for each, answer in ((server, wire.HostWelcome), (strict, wire.HostRefused)):
        host = Machine(each)
        host.join(each.fleet.make_token().token)
        assert isinstance(host.connect(sandbox=None), answer)
    assert strict.fleet.there == ()
    assert "an earlier jupyter-edt than the server, which would run jobs without a sandbox" in strict.view("a").why
    await strict.fleet.stop()


async def test_a_provider_that_made_the_token_counts_and_not_what_the_machine_says(server):
    made = server.fleet.make_token(provider="ray").token
    Machine(server).join(made, provider="local", provider_id="node-7")
    assert server.view("a").provider == "ray"


async def test_without_an_address_to_dial_there_are_no_tokens(tmp_path):
    alone = await Server(tmp_path, fleet_listen="", local_slots=1).open()
    with pytest.raises(Unprocessable) as refused:
        alone.fleet.make_token()
    assert "c.EdtApp.fleet_listen" in refused.value.hint
    assert refused.value.ids == {"field": "fleet_listen"}
    await alone.fleet.stop()


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"seconds": 31 * 86_400}, {"uses": 0}, {"uses": 10_001}])
async def test_tokens_that_cannot_be(server, wrong):
    with pytest.raises(Unprocessable):
        server.fleet.make_token(**wrong)


async def test_a_token_has_the_addresses_that_are_configured(tmp_path):
    given = await Server(tmp_path, fleet_addresses=("public:1", "other:2")).open()
    token = read_token(given.fleet.make_token().token)
    assert token.servers == ("tcp://public:1", "tcp://other:2")
    assert token.server_key == given.keys[0]
    await given.fleet.stop()
