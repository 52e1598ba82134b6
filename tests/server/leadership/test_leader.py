"""Who leads, and that nobody who leads no more writes: over SQLite and PostgreSQL, with processes that really die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from edt_sdk.schemas.errors import EdtError, ServerUnreachable
from edt_server.leadership.leader import LeaderElection, Leadership, LeaseLost, LeasePace
from edt_server.leadership.shared_secret import shared_secret
from edt_server.store import Store, Writer, sqlite_url
from edt_server.system.processes import identify
from tests.clocks import YEAR, set_wall_clock
from tests.server.store.conftest import cluster
from tests.waiting import until_async

__all__ = ["cluster"]  # a fixture

FAST = LeasePace(renew=0.05, valid=0.4, look=0.02)
SLOW = LeasePace(renew=60.0, valid=600.0, look=0.02)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path) -> Iterator[Store]:
    url = sqlite_url(tmp_path / "edt.sqlite")
    if request.param == "postgresql":
        url = request.getfixturevalue("cluster").new_database()
    opened = Store.open(url)
    yield opened
    opened.close()


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def claim_until_led(leadership: Leadership) -> None:
    deadline = time.monotonic() + 30
    while leadership.claim() is not None:
        assert time.monotonic() < deadline


def one(store, process, url="http://here/", pace=SLOW) -> Leadership:
    return Leadership(store, identify(process.pid), url, pace)


def test_one_leads_and_the_other_knows_where(store, processes) -> None:
    first, second = (one(store, process, url) for process, url in zip(processes, ("a", "b"), strict=True))
    assert first.claim() is None
    assert first.confirmed
    found = second.claim()
    assert found is not None
    assert (found.url, found.holder.pid) == ("a", processes[0].pid)
    assert not second.confirmed
    first.give_back()
    assert second.claim() is None
    assert first.claim() is not None


def test_who_is_seen_to_be_dead_is_followed_at_once(store, processes) -> None:
    first, second = (one(store, process) for process in processes)
    first.claim()
    assert second.claim() is not None
    processes[0].kill()
    processes[0].wait()
    assert second.claim() is None
    assert not first.renew()


def test_who_is_seen_to_be_stopped_is_followed_long_before_the_lease_is_over(store, processes) -> None:
    first, second = (one(store, process) for process in processes)
    first.claim()
    assert second.claim() is not None
    os.kill(processes[0].pid, signal.SIGSTOP)
    claim_until_led(second)
    assert not first.renew()
    with pytest.raises(LeaseLost), first.guarded().write():
        pass


def test_who_goes_on_before_it_is_followed_keeps_the_lease(store, processes) -> None:
    """It renews as soon as it goes on: whoever has just seen it stopped finds that it is not."""
    first, second = (one(store, process) for process in processes)
    first.claim()
    os.kill(processes[0].pid, signal.SIGSTOP)
    write = store.write

    @contextlib.contextmanager
    def late() -> Iterator[Writer]:
        """Between its last look and its transaction the other one is let go on."""
        store.write = write
        os.kill(processes[0].pid, signal.SIGCONT)
        assert first.renew()
        with write() as tx:
            yield tx

    store.write = late
    deadline = time.monotonic() + 30
    while store.write is not write:
        assert second.claim() is not None
        assert time.monotonic() < deadline
    assert first.renew()


def test_one_that_was_stopped_is_not_sure_before_it_has_renewed(store, processes) -> None:
    first = one(store, processes[0])
    first.claim()
    first.start_heartbeat()
    deadline = time.monotonic() + 30
    while first.confirmed:  # no beats: for all that it knows it stands still
        assert time.monotonic() < deadline
    assert first.beat()
    assert not first.confirmed
    while not first.confirmed:  # once, unless this very test stands still
        assert first.renew()
        first.beat()


def test_who_does_not_renew_is_followed_when_the_lease_is_over(store, processes) -> None:
    first, second = (one(store, process, pace=FAST) for process in processes)
    first.claim()
    deadline = time.monotonic() + 30
    while (found := second.claim()) is not None:
        assert time.monotonic() < deadline
        assert found.holder.pid == processes[0].pid
    assert not first.confirmed
    assert not first.renew()
    assert second.renew()


def test_whoever_renews_is_not_followed(store, processes) -> None:
    first, second = (one(store, process, pace=FAST) for process in processes)
    first.claim()
    until = time.monotonic() + 3 * FAST.valid
    while time.monotonic() < until:
        assert first.renew()
        assert second.claim() is not None


@pytest.mark.parametrize("leap", [YEAR, -YEAR])
def test_a_clock_that_leaps_takes_the_lease_from_no_leader(store, processes, monkeypatch, leap) -> None:
    first, second = (one(store, process) for process in processes)
    first.claim()
    assert second.claim() is not None
    set_wall_clock(monkeypatch, leap)
    assert second.claim() is not None
    assert first.renew()
    set_wall_clock(monkeypatch, 0.0)
    assert second.claim() is not None
    assert one(store, processes[1]).claim() is not None, "nor at a start"
    assert first.renew()
    assert first.confirmed
    processes[0].kill()
    processes[0].wait()
    assert second.claim() is None, "a leader that is dead is followed, whatever the clock says"


def test_somebody_of_another_host_is_judged_by_the_lease_alone(store, processes) -> None:
    elsewhere = msgspec.structs.replace(identify(processes[0].pid), host="elsewhere", pid=1, start_ticks=1)
    first = Leadership(store, elsewhere, "", FAST)
    second = one(store, processes[1], pace=FAST)
    first.claim()
    assert second.claim() is not None
    deadline = time.monotonic() + 30
    while second.claim() is not None:
        assert time.monotonic() < deadline


def test_a_leader_of_before_writes_nothing(store, processes) -> None:
    first, second = (one(store, process) for process in processes)
    first.claim()
    guarded = first.guarded()
    with guarded.write() as tx:
        tx.append("state", job=None, data={}, time=1.0)
    processes[0].kill()
    processes[0].wait()
    second.claim()
    with pytest.raises(LeaseLost), guarded.write() as tx:
        tx.append("state", job=None, data={"never": True}, time=2.0)
    assert [event.data for event in store.events()] == [{}]
    with second.guarded().write() as tx:
        tx.append("state", job=None, data={"new": True}, time=3.0)
    assert len(store.events()) == 2


def test_of_many_that_claim_at_once_one_leads(store, processes) -> None:
    first = one(store, processes[0])
    first.claim()
    processes[0].kill()
    processes[0].wait()
    candidates = [one(store, processes[1], str(number)) for number in range(8)]
    led: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n, c=c: led.append(n) if c.claim() is None else None)
        for n, c in enumerate(candidates)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(led) == 1
    lease = store.lease("leader")
    assert lease is not None
    assert lease.url == str(led[0])
    assert lease.fencing == 2


class Server:
    """A member that notes what it is told."""

    def __init__(self, store: Store, process: subprocess.Popen[bytes], url: str, pace: LeasePace = FAST) -> None:
        self.store: Store | None = None
        self.refuses: EdtError | None = None
        self.begun = asyncio.Event()
        self.ready: asyncio.Event | None = None
        self.member = LeaderElection(store, identify(process.pid), url, pace, self._lead, self._rest)

    async def _lead(self, store: Store) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.begun.set()
        if self.ready is not None:
            await self.ready.wait()
        self.store = store

    async def _rest(self) -> None:
        self.store = None


@pytest.mark.asyncio
async def test_members_take_turns(store, processes) -> None:
    first, second = (Server(store, process, url) for process, url in zip(processes, "ab", strict=True))
    await first.member.start()
    await second.member.start()
    assert await first.member.leader() is None
    other = await second.member.leader()
    assert other is not None
    assert other.url == "a"
    gone = asyncio.create_task(second.member.succeeded(other))
    await first.member.stop()
    await gone
    assert await second.member.leader() is None
    assert second.store is not None
    assert first.store is None
    await second.member.stop()


@pytest.mark.asyncio
async def test_a_member_whose_lease_was_taken_steps_down_and_follows(store, processes) -> None:
    server = Server(store, processes[0], "a")
    await server.member.start()
    with store.write() as tx:
        dead = tx.lease("leader")
        assert dead is not None
        tx.take_lease(
            "leader", identify(processes[1].pid), now=0, expires=time.time() + 600, url="b", dead=dead.fencing
        )
    await until_async(lambda: server.store is None, "its stepping down")
    other = await server.member.leader()
    assert other is None or other.url == "b"
    await server.member.stop()


@pytest.mark.asyncio
async def test_who_cannot_lead_says_so_and_lets_the_next_one(store, processes) -> None:
    first, second = (Server(store, process, "") for process in processes)
    first.refuses = ServerUnreachable("no port")
    with pytest.raises(ServerUnreachable, match="no port"):
        await first.member.start()
    await second.member.start()
    assert await second.member.leader() is None
    await second.member.stop()


@pytest.mark.asyncio
async def test_who_is_asked_while_it_starts_says_that_it_does(store, processes, monkeypatch) -> None:
    monkeypatch.setattr("edt_server.leadership.leader.PATIENCE", 0.1)
    server = Server(store, processes[0], "")
    ready = server.ready = asyncio.Event()
    starting = asyncio.create_task(server.member.start())
    await server.begun.wait()
    with pytest.raises(ServerUnreachable, match="This server is starting"):
        await server.member.leader()
    ready.set()
    await starting
    await server.member.stop()


@pytest.fixture
def slow_renewals(monkeypatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The first is set when somebody renews a lease; nobody has before the second is."""
    begun, goes_on = threading.Event(), threading.Event()
    goes_on.set()
    renew = Leadership.renew

    def slowly(self: Leadership) -> bool:
        begun.set()
        goes_on.wait()
        return renew(self)

    monkeypatch.setattr(Leadership, "renew", slowly)
    yield begun, goes_on
    goes_on.set()


@pytest.mark.asyncio
async def test_who_waits_while_a_renewal_takes_long_is_answered_after_it(store, processes, slow_renewals) -> None:
    begun, goes_on = slow_renewals
    server = Server(store, processes[0], "", LeasePace(renew=3600.0, valid=2.0, look=0.02))
    await server.member.start()
    goes_on.clear()
    begun.clear()
    assert server.member._keeper is not None
    server.member._keeper._due.set()  # in time, as far as can be known when it begins
    await asyncio.to_thread(begun.wait)
    await until_async(lambda: not server.member.leads, "the end of what is certain")
    waiting = asyncio.create_task(server.member.leader())
    await asyncio.sleep(0)
    goes_on.set()
    assert await waiting is None
    await server.member.stop()


@pytest.mark.asyncio
async def test_a_store_that_is_slow_is_what_is_named(store, processes, slow_renewals, monkeypatch) -> None:
    _, goes_on = slow_renewals
    monkeypatch.setattr("edt_server.leadership.leader.PATIENCE", 0.1)
    server = Server(store, processes[0], "")
    await server.member.start()
    goes_on.clear()
    await until_async(lambda: not server.member.leads, "the end of what is certain")
    with pytest.raises(ServerUnreachable, match=r"takes longer to write to than the 0\.4 s"):
        await server.member.leader()
    goes_on.set()
    await server.member.stop()


def test_a_shared_secret_is_the_same_for_all_and_private(tmp_path) -> None:
    path = tmp_path / "control" / "key"
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(shared_secret(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found[0]) > 30
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["key"]


def test_a_shared_secret_that_was_left_empty_is_made_anew(tmp_path) -> None:
    path = tmp_path / "forwarding.key"
    path.touch(0o600)
    secret = shared_secret(path)
    assert len(secret) > 30
    assert shared_secret(path) == secret
