"""The server's side of hosts: agents are found again, replaced when they die, given up when they are not named."""

import json
import logging
import os
import signal

import pytest

from edt_server.channel.hosts import HostLost, Hosts
from edt_server.messaging.agent_client import read_address
from edt_server.settings import Settings
from edt_server.system.processes import is_alive
from edt_server.system.runtime import private_dir
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


@pytest.fixture
def hosts(tmp_path):
    """Makes the hosts of servers that follow each other; ends the agents."""
    runtime = private_dir(tmp_path / "r")

    def make(changed=None, **named):
        async def nothing(there):
            pass

        settings = Settings(data_dir=tmp_path, runtime_dir=runtime, local_hosts=named)
        return Hosts(settings, changed or nothing)

    yield make
    for path in (tmp_path / "control" / "hosts").glob("*.json"):
        address = read_address(path.parent, path.stem)
        if address is not None and is_alive(address.identity):
            os.kill(address.identity.pid, signal.SIGTERM)


async def test_the_next_server_finds_the_agents_and_gives_up_those_it_does_not_name(hosts):
    first = hosts(a=2, b=1)
    await first.start()
    assert [(host.name, host.offers) for host in first.there] == [("a", 2), ("b", 1)]
    a, b = (read_address(first.folder, name).identity for name in "ab")
    await first.stop()
    assert is_alive(a)
    second = hosts(b=1, c=1)
    await second.start()
    assert [host.name for host in second.there] == ["b", "c"]
    assert read_address(second.folder, "b").identity == b
    await until_async(lambda: not is_alive(a))
    assert await second.place(["a", "c"]) == "c"
    assert await second.place([]) in ("b", "c")
    await second.stop()
    assert await second.place(["b"]) is None


async def test_an_agent_that_dies_is_replaced_and_its_host_is_away_meanwhile(hosts):
    told = []

    async def changed(there):
        told.append([host.name for host in there])

    kept = hosts(changed, a=1, b=1)
    await kept.start()
    await kept.follow()
    before = read_address(kept.folder, "a").identity
    os.kill(before.pid, signal.SIGKILL)
    await until_async(lambda: told == [["b"], ["a", "b"]])
    assert read_address(kept.folder, "a").identity != before
    await kept.stop()


async def test_what_is_asked_of_a_host_that_is_not_there_fails(hosts, tmp_path):
    kept = hosts(a=1)
    await kept.start()
    with pytest.raises(HostLost):
        await kept.start_supervisor("b", "job-1", tmp_path / "launch.json")
    os.kill(read_address(kept.folder, "a").identity.pid, signal.SIGSTOP)
    # Its guard ends it; nobody waits for an answer for ever.
    with pytest.raises(HostLost):
        await kept.start_supervisor("a", "job-1", tmp_path / "launch.json")
    await kept.stop()


async def test_an_agent_of_another_version_is_replaced_and_it_is_said(hosts, caplog):
    first = hosts(a=1, b=1)
    await first.start()
    before = {name: read_address(first.folder, name).identity for name in "ab"}
    await first.stop()
    for name in "ab":
        # As an earlier version may have written it: another number, other fields.
        path = first.folder / f"{name}.json"
        address = json.loads(path.read_bytes())
        old = {"protocol": 0, "socket": "/run/agent", "identity": address["identity"]}
        path.write_text(json.dumps(old))
    second = hosts(a=1)
    with caplog.at_level(logging.WARNING):
        await second.start()
    assert [host.name for host in second.there] == ["a"]
    assert read_address(second.folder, "a").identity != before["a"]
    assert not is_alive(before["a"])
    assert "agent of host a is of another version (it speaks protocol 0, this server 1)" in caplog.text
    assert "go on from their last checkpoints" in caplog.text
    await until_async(lambda: not is_alive(before["b"]))  # not named any more: it could not be asked to retire
    await second.stop()
