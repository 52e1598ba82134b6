"""A leader that is really stopped: another one leads; the first, let go on, writes nothing more, and follows."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from edt_server.leadership.leader import ONE_HOST, LeaderElection, Leadership, LeasePace
from edt_server.store import Store, StoreUnavailable, sqlite_url
from edt_server.system.processes import identify
from tests.server.store.conftest import cluster
from tests.waiting import until_async

__all__ = ["cluster"]  # a fixture

# The pace of one host, but of a lease that by itself would never be over: only the stop is seen.
PACE = LeasePace(renew=600.0, valid=6000.0, look=ONE_HOST.look)
LEADER = """
import asyncio, os, sys
from edt_server.leadership.leader import LeaderElection, LeasePace
from edt_server.system.processes import identify
from edt_server.store import Store

async def main(url, renew, valid, look):
    store = Store.open(url)
    mine = None

    async def lead(guarded):
        nonlocal mine
        mine = guarded

    async def rest():
        pass

    def write():
        with mine.write() as tx:
            tx.append("state", job=None, data={"by": "first"}, time=1.0)

    member = LeaderElection(store, identify(os.getpid()), "first", LeasePace(renew, valid, look), lead, rest)
    await member.start()
    while order := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if order == "write":
            try:
                await asyncio.to_thread(write)
                print("written", flush=True)
            except Exception as wrong:
                print(type(wrong).__name__, flush=True)
        elif order == "hold":
            with mine.write() as tx:
                tx.append("state", job=None, data={"by": "first"}, time=1.0)
                print("held", flush=True)
                sys.stdin.readline()
        else:
            other = await member.leader()
            print("leads" if other is None else "follows " + other.url, flush=True)

asyncio.run(main(sys.argv[1], *map(float, sys.argv[2:])))
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("cluster").new_database()
    return sqlite_url(tmp_path / "edt.sqlite")


@pytest.fixture
def store(url) -> Iterator[Store]:
    opened = Store.open(url)
    yield opened
    opened.close()


@pytest.fixture
def first(store, url) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", LEADER, url, str(PACE.renew), str(PACE.valid), str(PACE.look)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], *orders: str) -> None:
    process.stdin.write("".join(f"{order}\n" for order in orders))
    process.stdin.flush()


def heard(process: subprocess.Popen[str], number: int) -> list[str]:
    return [process.stdout.readline().strip() for _ in range(number)]


class Second:
    """The follower, in this process."""

    def __init__(self, store: Store) -> None:
        self.store: Store | None = None
        self.member = LeaderElection(store, identify(os.getpid()), "second", PACE, self._lead, self._rest)

    async def _lead(self, store: Store) -> None:
        self.store = store

    async def _rest(self) -> None:
        self.store = None


@pytest.mark.asyncio
async def test_every_write_of_a_leader_that_was_stopped_is_refused(store, first) -> None:
    tell(first, "write", "who")
    assert heard(first, 2) == ["written", "leads"]
    second = Second(store)
    await second.member.start()
    assert not second.member.leads
    os.kill(first.pid, signal.SIGSTOP)
    tell(first, *["write"] * 20, "who")
    await until_async(lambda: second.member.leads)
    with second.store.write() as tx:
        tx.append("state", job=None, data={"by": "second"}, time=2.0)
    os.kill(first.pid, signal.SIGCONT)
    assert await asyncio.to_thread(heard, first, 21) == [*["LeaseLost"] * 20, "follows second"]
    assert [event.data["by"] for event in store.events()] == ["first", "second"]
    # The roles are the other way round now, and remain so.
    assert second.member.leads
    await second.member.stop()
    tell(first, "who")
    await asyncio.to_thread(heard, first, 1)


@pytest.mark.asyncio
async def test_a_leader_that_is_stopped_and_goes_on_at_once_leads_on(store, first) -> None:
    tell(first, "write")
    assert heard(first, 1) == ["written"]
    second = Second(store)
    await second.member.start()
    for _ in range(20):
        os.kill(first.pid, signal.SIGSTOP)
        os.kill(first.pid, signal.SIGCONT)
        tell(first, "write", "who")
        assert await asyncio.to_thread(heard, first, 2) == ["written", "leads"]
    assert not second.member.leads
    await second.member.stop()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_one_that_was_stopped_while_it_wrote_is_named(store, first) -> None:
    tell(first, "hold")
    assert heard(first, 1) == ["held"]
    os.kill(first.pid, signal.SIGSTOP)
    second = Leadership(store, identify(os.getpid()), "second", PACE)
    refused: list[StoreUnavailable] = []
    deadline = time.monotonic() + 60
    while not refused:
        try:
            assert second.claim() is not None
        except StoreUnavailable as wrong:
            refused.append(wrong)
        assert time.monotonic() < deadline
    assert f"kill -CONT {first.pid}" in str(refused[0].hint)
    os.kill(first.pid, signal.SIGCONT)
    tell(first, "on", "who")
    assert heard(first, 1) == ["leads"]
    assert [event.data["by"] for event in store.events()] == ["first"]
