"""The server that tests, demos and benchmarks start."""

import socket

import psutil
import requests

from edt_sdk import testing


def test_a_port_that_somebody_took_meanwhile_is_left_to_them(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        ports = iter([taken, testing._free_port()])
        monkeypatch.setattr(testing, "_free_port", lambda: next(ports))
        with testing.LocalServer(tmp_path, slots=1) as server:
            assert str(taken) not in server.url
            assert requests.get(f"{server.url}edt/api/", params={"token": server.token}, timeout=120).ok


def ended(process: psutil.Process | None) -> bool:
    """Whether it has; reaping it is not for us."""
    assert process is not None
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_is_left_of_a_killed_server_ends_with_the_next_one(tmp_path):
    """Its kernels nobody else could end."""
    with testing.LocalServer(tmp_path, slots=1) as server:
        keeper = psutil.Process(server.pid).parent()
        started = requests.post(f"{server.url}api/kernels", params={"token": server.token}, json={}, timeout=120)
        assert started.status_code == 201
        server.kill()
        server.start()
    assert ended(keeper)


def test_a_server_that_was_killed_last_leaves_nothing_either(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import time\ntime.sleep(600)\n")
    with testing.LocalServer(tmp_path / "server", slots=1, traits={"EdtApp.threads_per_slot": 1}) as server:
        keeper = psutil.Process(server.pid).parent()
        server.client().submit(tmp_path / "code", main="train.py", framework="PyTorch", progress=False)
        server.kill()
    assert ended(keeper)
