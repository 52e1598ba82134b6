"""`c.EdtApp.remote_url` that cannot be right, the token that goes there, and what is left of a connection."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import logging

import psutil
import pytest
from tornado.httpclient import HTTPClientError

from edt_jupyter.http.remote import Remote


class TestNoAddress:
    @pytest.fixture
    def edt_config(self):
        return {"remote_url": "hub/services/edt"}

    async def test_every_answer_says_so(self, edt, jp_fetch):
        with pytest.raises(HTTPClientError) as refused:
            await jp_fetch("edt", "api", "jobs")
        body = json.loads(refused.value.response.body)
        assert "remote_url" in body["message"]
        assert "https://" in body["hint"]


def test_the_hubs_token_is_taken_where_none_is_configured():
    environ = {"JUPYTERHUB_API_TOKEN": "hubs"}
    assert Remote("https://hub/services/edt/", "", environ).peer().headers == {"Authorization": "token hubs"}
    assert Remote("https://hub/services/edt/", "own", environ).peer().headers == {"Authorization": "token own"}
    assert Remote("https://hub/services/edt/", "", {}).peer().url == "https://hub/services/edt"


class Silent:
    """Takes websockets and says nothing on them, not even that they are closed.

    Attributes:
        asked: somebody has asked for one.
        answers: when it is set, they get it.
        given: they have it.
    """

    def __init__(self) -> None:
        self.asked, self.answers, self.given = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._over = asyncio.Event()
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self
            await self._over.wait()

    async def _serve(self, reader, writer):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        key = next(line.split(": ")[1] for line in lines if line.lower().startswith("sec-websocket-key"))
        self.asked.set()
        await self.answers.wait()
        accept = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(head + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        self.given.set()
        await reader.read()  # until the other side has closed it
        writer.close()
        await writer.wait_closed()
        self._over.set()

    def connections(self) -> list[object]:
        """Those of this process to it."""
        found = psutil.Process().net_connections("tcp")
        return [each for each in found if each.raddr and each.raddr.port == self.port]


class TestNobodyListens:
    async def test_a_connection_is_closed_at_once(self):
        async with Silent().serving() as silent:
            silent.answers.set()
            hearing = asyncio.create_task(self.remote(silent).hear(print, logging.getLogger("test")))
            await silent.given.wait()
            while "_listen" not in stack(hearing):
                await asyncio.sleep(0.01)
            assert silent.connections() != []
            await self.end(hearing)
            assert silent.connections() == []

    async def test_one_that_is_being_made_too(self):
        async with Silent().serving() as silent:
            hearing = asyncio.create_task(self.remote(silent).hear(print, logging.getLogger("test")))
            await silent.asked.wait()
            hearing.cancel()
            await asyncio.sleep(0)
            silent.answers.set()
            await asyncio.wait({hearing})
            assert silent.connections() == []

    async def test_one_that_is_not_answered_holds_nobody_up(self, monkeypatch):
        monkeypatch.setattr("edt_jupyter.http.remote._LAST_MOMENT", 0.01)
        async with Silent().serving() as silent:
            hearing = asyncio.create_task(self.remote(silent).hear(print, logging.getLogger("test")))
            await silent.asked.wait()
            await self.end(hearing)
            silent.answers.set()
            while silent.connections():
                await asyncio.sleep(0.01)

    @staticmethod
    def remote(silent: Silent) -> Remote:
        return Remote(f"http://127.0.0.1:{silent.port}")

    @staticmethod
    async def end(hearing: asyncio.Task[None]) -> None:
        hearing.cancel()
        await asyncio.wait({hearing})


def stack(task: asyncio.Task[None]) -> list[str]:
    """Names of the coroutines that the task is in."""
    names, inner = [], task.get_coro()
    while inner is not None and hasattr(inner, "cr_await"):
        names.append(inner.__qualname__)
        inner = inner.cr_await
    return names
