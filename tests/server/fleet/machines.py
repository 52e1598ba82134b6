"""Machines that speak with a fleet without a network: the test gives it what they send, and keeps what it sends."""

from __future__ import annotations

import itertools
import os
import socket

import msgspec

from edt_sdk.schemas.wire import agent as wire
from edt_server.fleet import Fleet
from edt_server.messaging import key_pair, read_token
from edt_server.settings import Settings
from edt_server.system.processes import identify

_peers = itertools.count(1)


class Channel:
    """A control channel that keeps what is admitted and sent. Peers in `gone` cannot be reached."""

    def __init__(self):
        self.admitted = {}
        self.sent = []
        self.gone = set()

    def admit(self, owner, public_key):
        self.admitted[owner] = public_key

    def forget(self, owner):
        self.admitted.pop(owner, None)

    def answer(self, peer, *frames):
        if peer in self.gone:
            return False
        self.sent.append((peer, wire.decode_to_host(frames[0]), *frames[1:]))
        return True

    def owner_of(self, public_key):
        """The name of what connects with this key, as the gatekeeper tells it. None where it is refused."""
        return next((owner for owner, key in self.admitted.items() if key == public_key), None)


class Server:
    """A fleet and what surrounds it. `changes` are the names of the hosts whose slots were offered, each time."""

    def __init__(self, folder, **settings):
        given = {"local_slots": -1, "fleet_listen": "127.0.0.1:8790", **settings}
        self.settings = Settings(data_dir=folder, runtime_dir=folder / "r", **given)
        self.channel = Channel()
        self.changes = []
        self.fleet = Fleet(self.settings, self._changed)
        self.keys = key_pair()

    async def _changed(self, there):
        self.changes.append([host.name for host in there])

    async def open(self):
        await self.fleet.open()
        self.fleet.started(self.channel, self.keys)
        return self

    def view(self, name):
        return next((each for each in self.fleet.standing() if each.name == name), None)


class Machine:
    """A machine with keys. `boot` tells one start of it from another, and `started` its agents."""

    def __init__(self, server, name="a"):
        self.server = server
        self.name = name
        self.public, _ = key_pair()
        self.boot = f"boot-{name}"
        self.started = 1
        self.peer = b""

    def say(self, message, data=b"", *, peer=None):
        """Send to the server over the present connection; returns what it has answered at once."""
        peer = self.peer if peer is None else peer
        owner = self.server.channel.owner_of(self.public)
        assert owner is not None, "the key is refused"
        before = len(self.server.channel.sent)
        self.server.fleet.receive(owner, peer, wire.encode(message), data)
        return [message for to, message, *_ in self.server.channel.sent[before:] if to == peer]

    def join(self, token, **changes):
        """Join with a token's text; returns the answer. The machine has the name that it is given from then on."""
        owner = self.server.channel.owner_of(read_token(token).public_key)
        assert owner is not None, "the token's key is refused"
        fields = {"protocol": wire.AGENT_PROTOCOL, "name": self.name, "public_key": self.public, **changes}
        before = len(self.server.channel.sent)
        self.server.fleet.receive(owner, b"joining", wire.encode(wire.Join(**fields)), b"")
        _, answer = self.server.channel.sent[before]
        if isinstance(answer, wire.HostJoined):
            self.name = answer.host
        return answer

    def hello(self, **changes):
        real = identify(os.getpid())
        identity = msgspec.structs.replace(
            real, host=f"{socket.gethostname()}-{self.name}", boot_id=self.boot, start_ticks=self.started
        )
        fields = {
            "protocol": wire.AGENT_PROTOCOL,
            "wheel": "1",
            "identity": identity,
            "endpoint": "tcp://127.0.0.1:1",
            "cores": 4,
            "gpus": (),
            "offers": 2,
            "memory": 1 << 30,
            "kind": "kind-1",
            "below": (),
            "sandbox": "",
        }
        return wire.HostHello(**fields | changes)

    def connect(self, **changes):
        """Dial and greet on a new connection; returns the first answer."""
        self.peer = b"peer-%d" % next(_peers)
        return self.say(self.hello(**changes))[0]

    def beat(self):
        return self.say(wire.HostBeat(load=0.5, memory_free=1, disk_free=2))

    def close(self):
        """The connection ends. The server notices when it sends something."""
        self.server.channel.gone.add(self.peer)
        self.server.fleet.look()

    def got(self, kind):
        """All messages of a kind that were sent over the present connection."""
        return [each for to, each, *_ in self.server.channel.sent if to == self.peer and isinstance(each, kind)]


async def joined(server, name="a"):
    """A machine that has joined and is up."""
    machine = Machine(server, name)
    machine.join(server.fleet.make_token().token)
    assert isinstance(machine.connect(), wire.HostWelcome)
    return machine
