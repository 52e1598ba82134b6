"""The link over a real Unix socket, with real peers."""

import asyncio
import contextlib
import os
import stat
import subprocess
import sys

import pytest
import pytest_asyncio

from edt_sdk.schemas.errors import EdtError
from edt_sdk.schemas.wire import link
from edt_server.supervisor.link_server import LinkServer
from edt_server.supervisor.state_machines.events import DRIVER
from tests.waiting import until_async

pytestmark = pytest.mark.asyncio
HELLO = link.WorkerHello(worker=1, pid=os.getpid(), host="h", store_port=3)


class Ears:
    """A link server for one worker, whose session is this test's."""

    def __init__(self, path, owner=None):
        self.path = path
        self.key = 1
        self.heard = []
        self.lost = []
        self.writers = []
        self.server = LinkServer(
            path, leader=self.leader, on_message=self.on_message, on_lost=self.on_lost, owner=owner
        )

    def leader(self, session):
        return self.key if session == os.getsid(0) else None

    def on_message(self, key, message):
        self.heard.append((key, message))

    def on_lost(self, key, why):
        self.lost.append((key, why))

    async def connect(self, *messages):
        reader, writer = await asyncio.open_unix_connection(self.path)
        self.writers.append(writer)
        for message in messages:
            writer.write(message if isinstance(message, bytes) else link.encode(message))
        return reader, writer


@pytest_asyncio.fixture
async def ears(tmp_path):
    ears = Ears(tmp_path / "link.sock")
    await ears.server.start()
    yield ears
    await ears.server.stop()
    for writer in ears.writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_messages_go_both_ways_and_the_end_is_noticed(ears):
    reader, writer = await ears.connect(HELLO, link.WorkerReady(worker=1, training=0))
    await until_async(lambda: len(ears.heard) == 2)
    assert ears.heard == [(1, HELLO), (1, link.WorkerReady(worker=1, training=0))]
    assert ears.server.send(1, link.Begin(training=0, payload="p"))
    assert link.decode_downward(await reader.readline()) == link.Begin(training=0, payload="p")
    assert not ears.server.send(2, link.Begin(training=0, payload="p"))
    writer.close()
    await until_async(lambda: ears.lost)
    assert ears.lost == [(1, "it closed the connection")]
    assert not ears.server.send(1, link.Begin(training=0, payload="p"))


async def test_a_long_message_arrives_whole(ears):
    failed = link.Failed(worker=1, message="m" * 300_000, traceback="t" * 300_000)
    await ears.connect(HELLO, failed)
    await until_async(lambda: len(ears.heard) == 2)
    assert ears.heard[1] == (1, failed)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([b"GET / HTTP/1.1\n"], "it sent something that is no message"),
        ([HELLO, b'{"type": "Joined", "worker": "one"}\n'], "it sent something that is no message"),
        ([link.WorkerReady(worker=1, training=0)], "it sent a WorkerReady that is not its own to send"),
        ([HELLO, HELLO], "it sent a WorkerHello that is not its own to send"),
        ([HELLO, link.WorkerReady(worker=2, training=0)], "it sent a WorkerReady that is not its own to send"),
        ([link.DriverHello(pid=1)], "it sent a DriverHello that is not its own to send"),
        ([HELLO, b"x" * (17 << 20)], "it sent something that is no message"),
    ],
)
async def test_nonsense_closes_the_link(ears, messages, why):
    reader, _ = await ears.connect(*messages)
    await until_async(lambda: ears.lost)
    assert ears.lost == [(1, why)]
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 180) == b""


async def test_only_processes_of_the_job_may_connect(ears):
    probe = (
        "import socket, sys\n"
        "link = socket.socket(socket.AF_UNIX); link.connect(sys.argv[1])\n"
        "try:\n"
        "    link.sendall(sys.argv[2].encode()); print(link.recv(1))\n"
        "except ConnectionError:\n"
        "    print(b'')"
    )
    stranger = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", probe, str(ears.path), link.encode(HELLO).decode()),
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(stranger.communicate(), 180)
    assert said == b"b''\n"
    assert ears.heard == []
    assert stat.S_IMODE(ears.path.stat().st_mode) == 0o600


async def test_a_process_has_one_link(ears):
    await ears.connect(HELLO)
    await until_async(lambda: ears.heard)
    reader, _ = await ears.connect(HELLO)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    assert ears.lost == []


async def test_drained_waits_for_all_that_was_said(ears):
    _, writer = await ears.connect(HELLO, *(link.WorkerReady(worker=1, training=n) for n in range(500)))
    writer.close()
    await ears.server.drained(1)
    assert len(ears.heard) == 501
    assert ears.lost
    await ears.server.drained(DRIVER)


async def test_a_path_that_is_too_long_is_refused_with_a_hint(tmp_path):
    server = Ears(tmp_path / ("x" * 100)).server
    with pytest.raises(EdtError, match="longer than a Unix socket"):
        await server.start()


async def test_the_socket_goes_with_its_server(tmp_path):
    ears = Ears(tmp_path / "link.sock")
    ears.path.write_text("left by one that was killed")
    await ears.server.start()
    assert ears.path.is_socket()
    await ears.server.stop()
    assert not ears.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can give a socket to another group.")
async def test_only_the_account_of_the_job_may_use_it(tmp_path):
    ears = Ears(tmp_path / "link.sock", owner=(1, 1))
    await ears.server.start()
    found = ears.path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 1, 0o660)
    # This process has the session of a worker, and another uid.
    reader, writer = await ears.connect(HELLO)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    assert ears.heard == []
    writer.close()
    await ears.server.stop()
