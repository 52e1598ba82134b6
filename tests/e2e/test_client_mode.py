"""A server that runs no jobs (`c.EdtApp.remote_url`): everything asked of it is answered by the one that does."""

from __future__ import annotations

import asyncio
import json
import logging
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from edt_jupyter.http.remote import Remote
from edt_sdk import Client, ServerUnreachable
from edt_sdk.schemas.job import JobState
from edt_sdk.testing import LocalServer
from tests.e2e.harness import JOBS

LIMIT = 60.0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """The server that runs the jobs."""
    root = tmp_path_factory.mktemp("runs")
    with LocalServer(root, slots=2, traits={"EdtApp.threads_per_slot": 1}) as server:
        yield server


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory, runs: LocalServer) -> Iterator[LocalServer]:
    """A user's own server."""
    traits = {"EdtApp.remote_url": runs.url, "EdtApp.remote_token": runs.token}
    with LocalServer(tmp_path_factory.mktemp("asks"), slots=1, traits=traits) as server:
        yield server


def test_a_job_from_submit_to_model(runs: LocalServer, asks: LocalServer, tmp_path: Path) -> None:
    client, there = Client(asks.url, asks.token), Client(runs.url, runs.token)
    assert len(client.cluster()["slots"]) == len(there.cluster()["slots"]) == 2
    job = client.submit(JOBS, main="cnn.py", args=["--epochs", "2", "--samples", "60"], max_workers=2, progress=False)
    assert there.job(job.id).view.owner == job.view.owner
    streamed = [line.text for line in job.logs(follow=True)]  # a stream of events, through both servers to its end
    assert job.refresh().view.state is JobState.FINISHED
    assert sorted(streamed) == sorted(line.text for line in there.job(job.id).logs().lines)  # of several files at once
    with zipfile.ZipFile(job.download(tmp_path, "model")) as got:
        assert got.testzip() is None
        assert any(name.endswith(".pth") for name in got.namelist())
    assert not (asks.data_dir / "jobs").exists()


def test_changes_of_state_are_heard_on_the_users_own_bus(runs: LocalServer, asks: LocalServer) -> None:
    heard = asyncio.run(_states_while(asks, Client(runs.url, runs.token)))
    assert heard[-1] == "FINISHED"
    assert "RUNNING" in heard


async def _states_while(asks: LocalServer, client: Client) -> list[str]:
    url = f"ws{asks.url.removeprefix('http').rstrip('/')}/api/events/subscribe"
    bus = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {asks.token}"}))
    job = await asyncio.to_thread(
        client.submit, JOBS, main="cnn.py", args=["--epochs", "1", "--samples", "60"], progress=False
    )
    states: list[str] = []
    async with asyncio.timeout(LIMIT):
        while not states or not JobState(states[-1]).final:
            message = await bus.read_message()
            assert message is not None
            event = json.loads(message)
            if event.get("job") == job.id:
                states.append(event["state"])
    bus.close()
    while await bus.read_message() is not None:  # until it is closed
        pass
    return states


def test_a_token_that_is_not_known_there_is_said_in_the_log_once(
    runs: LocalServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edt_jupyter.http.remote._AGAIN", 0.01)
    heard: list[object] = []
    asyncio.run(_listen_in_vain(Remote(runs.url, "wrong"), heard.append, lambda: refusals(runs)))
    assert ["403" in record.getMessage() for record in caplog.records if record.name == "test"] == [True]
    assert heard == []


def refusals(server: LocalServer) -> int:
    return server.log.read_text().count(" 403 GET ")


async def _listen_in_vain(remote: Remote, tell: Callable[[object], None], refused: Callable[[], int]) -> None:
    """Until it was refused three times."""
    before = refused()
    hearing = asyncio.create_task(remote.hear(tell, logging.getLogger("test")))
    async with asyncio.timeout(LIMIT):
        while refused() < before + 3:
            await asyncio.sleep(0.01)
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)


def test_a_server_that_is_away_is_named_and_found_again(runs: LocalServer, asks: LocalServer) -> None:
    client = Client(asks.url, asks.token)
    known = [job.id for job in client.jobs()]
    port = int(urlsplit(runs.url).port or 0)
    runs.kill()
    with pytest.raises(ServerUnreachable, match="does not answer"):
        client.jobs()
    answer = requests.get(f"{asks.url}edt/api/jobs", headers={"Authorization": f"token {asks.token}"}, timeout=LIMIT)
    assert answer.status_code == 503
    assert runs.url.rstrip("/") in answer.json()["message"]
    runs._start(port)
    assert runs._answers()
    assert [job.id for job in client.jobs()] == known
