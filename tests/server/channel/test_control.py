"""The control channel over real sockets: the server against plain ZeroMQ clients."""

import asyncio
import contextlib
import json
import logging
import os
import stat
import time

import pytest
import pytest_asyncio
import zmq
import zmq.asyncio

from edt_sdk.schemas.job import JobProgress
from edt_sdk.schemas.wire.agent import HOST_KEY
from edt_sdk.schemas.wire.control import (
    PROTOCOL,
    Ack,
    Allocation,
    DriverStarted,
    Numbered,
    ProgressReport,
    Refused,
    StopJob,
    SupervisorHello,
    Welcome,
    decode_to_supervisor,
    encode,
)
from edt_server.messaging import key_pair
from edt_server.store import StoreUnavailable
from edt_server.system.processes import identify
from tests.server.control_channel import Service
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def service(tmp_path):
    service = Service(tmp_path / "control")
    await service.control.start()
    yield service
    await service.control.stop()


class Client:
    """A DEALER with a key."""

    def __init__(self, context, control_file, keys):
        address = json.loads(control_file.read_text())
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.curve_serverkey = address["public_key"].encode()
        self.socket.curve_publickey, self.socket.curve_secretkey = (key.encode() for key in keys)
        self.socket.connect(address["endpoint"])

    async def send(self, message):
        await self.socket.send(message if isinstance(message, bytes) else encode(message))

    async def receive(self):
        return decode_to_supervisor(await asyncio.wait_for(self.socket.recv(), 180))


@pytest_asyncio.fixture
async def connect(service):
    context = zmq.asyncio.Context()
    clients = []

    def connect(keys):
        clients.append(Client(context, service.control.control_file, keys))
        return clients[-1]

    yield connect
    for client in clients:
        client.socket.close()
    context.destroy(linger=0)


def hello(**changes):
    fields = {"protocol": PROTOCOL, "attempt": 1, "identity": identify(os.getpid()), "holding": (), "last_report": 0}
    return SupervisorHello(**fields | changes)


def numbered(number):
    return Numbered(number=number, time=1.0, report=DriverStarted(pid=number))


async def test_keys_and_address_are_private_and_loopback_only(service):
    folder = service.control.control_file.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    endpoint = json.loads(service.control.control_file.read_text())["endpoint"]
    assert endpoint.startswith("tcp://127.0.0.1:")
    assert not endpoint.endswith(":0")


async def test_who_speaks_is_known_from_the_key(service, connect):
    keys = {job: key_pair() for job in ("a", "b")}
    for job, (public, _) in keys.items():
        service.control.admit(job, public)
    clients = {job: connect(pair) for job, pair in keys.items()}
    for job, client in clients.items():
        await client.send(hello())
        assert await client.receive() == Welcome(protocol=PROTOCOL, acknowledged=0)
        await client.send(numbered(1))
        assert await client.receive() == Ack(number=1)
        assert service.heard[-1] == (job, numbered(1))
    assert service.connected == ["a", "b"]
    assert service.control.send("b", StopJob(why="only b"))
    assert await clients["b"].receive() == StopJob(why="only b")
    assert not service.control.send("c", StopJob(why="nobody"))


async def test_an_unknown_key_cannot_connect(service, connect):
    stranger = connect(key_pair())
    refused = stranger.socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    await stranger.send(hello())
    event = await asyncio.wait_for(refused.recv_multipart(), 180)
    refused.close()
    assert int.from_bytes(event[0][:2], "little") == zmq.EVENT_HANDSHAKE_FAILED_AUTH
    assert service.heard == []


async def test_plain_connections_get_nowhere(service, connect):
    known = key_pair()
    service.control.admit("a", known[0])
    endpoint = json.loads(service.control.control_file.read_text())["endpoint"]
    context = zmq.asyncio.Context()
    plain = context.socket(zmq.DEALER)
    plain.connect(endpoint)
    # Its handshake may have failed already; then there is nobody to send to, now or later.
    with contextlib.suppress(zmq.Again):
        await plain.send(encode(hello()), zmq.NOBLOCK)
    client = connect(known)
    await client.send(hello())
    await client.receive()
    assert [job for job, _ in service.heard] == ["a"]
    plain.close(linger=0)
    context.term()


async def test_a_forgotten_job_and_one_that_did_not_say_hello_are_not_heard(service, connect):
    keys = key_pair()
    service.control.admit("a", keys[0])
    client = connect(keys)
    await client.send(numbered(1))
    await client.send(hello())
    assert isinstance(await client.receive(), Welcome)
    service.control.forget("a")
    assert not service.control.send("a", StopJob(why="x"))
    await client.send(numbered(2))
    other = key_pair()
    service.control.admit("b", other[0])
    second = connect(other)
    await second.send(hello())
    await second.receive()
    assert service.of(Numbered) == []


async def test_only_the_newest_connection_of_a_job_is_listened_to(service, connect):
    keys = key_pair()
    service.control.admit("a", keys[0])
    old, new = connect(keys), connect(keys)
    for client in (old, new):
        await client.send(hello())
        await client.receive()
    await old.send(numbered(7))
    await new.send(numbered(1))
    assert await new.receive() == Ack(number=1)
    await until_async(lambda: service.of(Numbered))
    assert service.of(Numbered) == [numbered(1)]


async def test_a_refused_supervisor_hears_why_and_nothing_else(service, connect):
    keys = key_pair()
    service.control.admit("a", keys[0])
    service.answer = Refused(why="attempt 2 runs")
    client = connect(keys)
    await client.send(hello())
    assert await client.receive() == Refused(why="attempt 2 runs")
    assert service.connected == []
    assert not service.control.send("a", StopJob(why="x"))


async def test_what_follows_from_a_report_is_sent_behind_its_ack(service, connect):
    keys = key_pair()
    service.control.admit("a", keys[0])
    service.then_send = Allocation(version=3, slots=())
    client = connect(keys)
    await client.send(hello())
    await client.receive()
    await client.send(numbered(1))
    assert await client.receive() == Ack(number=1)
    assert await client.receive() == Allocation(version=3, slots=())


async def test_a_report_that_fails_is_not_acknowledged_and_not_overtaken(service, connect, caplog):
    keys = key_pair()
    service.control.admit("a", keys[0])
    client = connect(keys)
    await client.send(hello())
    await client.receive()
    service.fail_on = {2}
    for number in (1, 2, 3, 2, 3, 1):
        await client.send(numbered(number))
    assert [await client.receive() for _ in range(4)] == [Ack(number=n) for n in (1, 2, 3, 1)]
    assert [report.number for report in service.of(Numbered)] == [1, 2, 3, 1]
    assert "job=a" in caplog.text


async def test_a_report_that_came_while_the_store_was_away_is_waited_for_and_no_defect(service, connect, caplog):
    caplog.set_level(logging.INFO)
    keys = key_pair()
    service.control.admit("a", keys[0])
    client = connect(keys)
    await client.send(hello())
    await client.receive()
    service.fail_on, service.fail_with = {1}, StoreUnavailable("The job store cannot be used now: locked")
    await client.send(numbered(1))
    await until_async(lambda: "waits until" in caplog.text)
    service.fail_on = {1}
    for number in (2, 1, 2, 1, 2):
        await client.send(numbered(number))
    assert [await client.receive() for _ in range(2)] == [Ack(number=n) for n in (1, 2)]
    assert [report.number for report in service.of(Numbered)] == [1, 2]
    waiting = [record for record in caplog.records if "waits until the job store can be used, job=a" in record.message]
    assert [record.levelname for record in waiting] == ["INFO"], "once, however often it is repeated"
    assert "Traceback" not in caplog.text
    assert "locked" not in caplog.text, "who has the store says that"


async def test_nonsense_is_dropped_and_not_repeated_in_the_log(service, connect, caplog):
    keys = key_pair()
    service.control.admit("a", keys[0])
    client = connect(keys)
    await client.send(hello())
    await client.receive()
    await client.send(b'{"type": "Numbered", "password": "hunter2"}')
    await client.send(ProgressReport(progress=JobProgress(update=4)))
    await until_async(lambda: service.of(JobProgress))
    assert "job=a" in caplog.text
    assert "hunter2" not in caplog.text


async def test_two_servers_that_start_at_once_agree_on_one_key(tmp_path):
    services = [Service(tmp_path / "control") for _ in range(2)]
    await asyncio.gather(*(service.control.start() for service in services))
    key = json.loads((tmp_path / "control" / "server.key").read_text())
    assert json.loads(services[0].control.control_file.read_text())["public_key"] == key["public"]
    await asyncio.gather(*(service.control.stop() for service in services))


class Hosts:
    """Takes what a host sends, each message in some time."""

    endpoints = ()

    def __init__(self):
        self.public, self.secret = key_pair()
        self.seen = 0

    def started(self, control, keys):
        control.admit(f"{HOST_KEY}a", self.public)

    def receive(self, sender, peer, message, data):
        time.sleep(0.002)
        self.seen += 1

    def look(self):
        pass


async def test_many_messages_of_hosts_leave_others_their_turn(tmp_path):
    service, hosts = Service(tmp_path / "control"), Hosts()
    await service.control.stop()
    control = service.server(hosts)
    await control.start()
    context = zmq.asyncio.Context()
    client = Client(context, control.control_file, (hosts.public, hosts.secret))
    count, between = 500, set()
    for _ in range(count):
        await client.send(b"{}")
    while hosts.seen < count:
        await asyncio.sleep(0)
        between.add(hosts.seen)
    client.socket.close()
    context.destroy(linger=0)
    await control.stop()
    assert len(between) > count / 20
