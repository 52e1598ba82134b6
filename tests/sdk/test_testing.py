"""The server that tests, demos and benchmarks start."""

import socket

import requests

from edt_sdk import testing


def test_a_port_that_somebody_took_meanwhile_is_left_to_them(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        ports = iter([taken, testing._free_port()])
        monkeypatch.setattr(testing, "_free_port", lambda: next(ports))
        with testing.LocalServer(tmp_path, slots=1) as server:
            assert str(taken) not in server.url
            assert requests.get(f"{server.url}edt/api/", params={"token": server.token}, timeout=30).ok
