"""The processes of an edge: one for a folder, on one port for as long as it runs, gone when it has to end."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from edt_server.serving import __main__ as program
from edt_server.serving import app
from edt_server.serving.edge import Edge
from edt_server.system.processes import identify, is_alive
from tests.server.serving.conftest import RunningEdge, alive
from tests.server.serving.test_edge import error
from tests.waiting import until


@pytest.fixture
def edge(tmp_path):
    """An edge of the test's own."""
    running = RunningEdge(tmp_path)
    yield running
    if running.process.poll() is None:
        running.stop()


def kill_child(edge):
    """Kill the process that answers, and return when the next one does."""
    before = edge.child
    os.kill(before, signal.SIGKILL)
    edge.http.close()
    until(lambda: edge.child not in (None, before), "the next process")


def test_the_address_is_that_of_the_parent_and_a_second_edge_refuses(edge):
    assert edge.address.identity == identify(edge.process.pid)
    assert edge.address.url == f"http://127.0.0.1:{edge.address.port}"
    assert (edge.folder / "edge-address.json").stat().st_mode & 0o777 == 0o600
    address = edge.address
    second = subprocess.run(
        [sys.executable, "-m", "edt_server.serving", str(edge.folder / "edge.json"), "127.0.0.1", "0"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (second.returncode, second.stderr) == (1, f"Another edge serves {edge.folder}.\n")
    assert edge.address == address
    assert edge.get("/v2/health/live").ok


def test_a_killed_edge_is_back_on_its_port_with_its_replicas(edge, start):
    target = edge.target()
    edge.deploy(target)
    replica = start(target)
    edge.connected()
    port = edge.address.port
    for number in range(1, 4):
        kill_child(edge)
        # Sent at once: it waits for the next process, and there for the replica.
        assert edge.post(data=b"[1]").content == b"[1]"
        assert edge.address.port == port
        assert replica.connections == 1 + number
    assert edge.counters().requests == {200: 1}


def test_a_caller_of_a_killed_edge_gets_a_reset_and_no_wrong_answer(edge, start):
    target = edge.target()
    edge.deploy(target)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(edge.post)
        until(lambda: edge.counters().queued == 1, "the request")
        kill_child(edge)
        with pytest.raises(requests.ConnectionError):
            answer.result()
    start(target)
    assert edge.post().status_code == 200


def test_the_death_of_the_parent_is_that_of_the_edge_and_the_next_takes_the_port(edge, start):
    target = edge.target()
    edge.deploy(target)
    start(target)
    child = edge.child
    edge.process.kill()
    edge.process.wait()
    until(lambda: not alive(child), "the end of the edge")
    edge.port = edge.address.port
    edge.http.close()
    edge.start()
    assert edge.address.port == edge.port
    assert edge.post(data=b"[1]").content == b"[1]"


def test_a_port_that_is_taken_is_replaced_by_a_free_one(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        edge = RunningEdge(tmp_path, port)
        assert edge.address.port != port
        edge.stop()
    assert f"port {port} cannot be had" in edge.log.read_text()


def test_the_end_comes_although_callers_wait(edge):
    target = edge.target()
    edge.deploy(target, patience=600.0)
    child = edge.child
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(edge.post)
        until(lambda: edge.counters().queued == 1, "the request")
        edge.http.close()
        edge.process.send_signal(signal.SIGTERM)
        assert edge.process.wait(60) == 0
        assert (answer.result().status_code, error(answer.result())) == (503, "The edge ends.")
    assert not alive(child)
    assert not is_alive(edge.address.identity)
    assert not Path(target.socket).exists()
    assert "Traceback" not in edge.log.read_text()


def test_an_edge_that_dies_at_once_is_started_after_growing_pauses():
    pauses = [0.0]
    for _ in range(9):
        pauses.append(program._pause(pauses[-1], 0.01))
    assert pauses[:5] == [0.0, 0.1, 0.2, 0.4, 0.8]
    assert pauses[-2:] == [5.0, 5.0]
    assert program._pause(5.0, 60.0) == 0.0


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"), ("::1", "http://[::1]:")]
)
def test_the_address_can_be_called_from_this_machine(host, url):
    try:
        listener = program._listen(host, 0)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with listener:
        assert program._address(listener).url == f"{url}{listener.getsockname()[1]}"


def test_an_edge_that_no_longer_follows_its_file_ends(monkeypatch, tmp_path, caplog):
    class Broken(Edge):
        async def run(self):
            raise ZeroDivisionError

    sent = []
    monkeypatch.setattr(app.signal, "raise_signal", sent.append)

    async def running():
        async with app.make_app(Broken(tmp_path / "edge.json")).router.lifespan_context(None):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(running())
    assert sent == [signal.SIGTERM]
    assert "no longer follows its file" in caplog.text
