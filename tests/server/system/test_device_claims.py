"""Two stores of one account never use one GPU at once, whoever dies."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time

import pytest

from edt_sdk.schemas.wire.control import Slot
from edt_server.core.events import JobArrived, JobGone, SlotReleased, SlotsChanged
from edt_server.ledger.ledger import Ledger
from edt_server.store import sqlite_url
from edt_server.system.device_claims import DeviceClaims
from edt_server.system.processes import identify


@pytest.fixture
def server():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def stores(tmp_path, server):
    def make(name: str, pid: int) -> DeviceClaims:
        runtime = tmp_path / f"run-{name}"
        return DeviceClaims(tmp_path / name, runtime, identify(pid), tmp_path / "claims")

    return make("a", server.pid), make("b", os.getpid())


def age(tmp_path) -> None:
    """As if the claims had been made long ago."""
    long_ago = time.time() - 3600
    for path in (tmp_path / "claims").glob("*.json"):
        os.utime(path, (long_ago, long_ago))


def test_who_comes_first_has_it_until_it_is_given_up(stores) -> None:
    a, b = stores
    assert a.take("cuda:0", "one")
    assert a.take("cuda:0", "two")  # two slots of one store may share a device
    assert not b.take("cuda:0", "three")
    assert b.take("cuda:1", "three")
    assert list(b.elsewhere()) == ["cuda:0"]
    assert list(a.elsewhere()) == ["cuda:1"]
    a.keep({"cuda:0": ("two",)})
    assert not b.take("cuda:0", "three")
    a.keep({})
    assert b.elsewhere() == {}
    assert b.take("cuda:0", "three")


def test_a_claim_outlives_its_server_as_long_as_a_process_of_the_job(stores, tmp_path, server) -> None:
    a, b = stores
    a.take("cuda:0", "one")
    lock = tmp_path / "run-a" / "one" / "alive.lock"
    lock.parent.mkdir(parents=True)
    holder = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    age(tmp_path)
    server.kill()
    server.wait()
    assert not b.take("cuda:0", "two")
    assert list(b.elsewhere()) == ["cuda:0"]
    os.close(holder)
    assert b.elsewhere() == {}
    assert b.take("cuda:0", "two")


def test_a_supervisor_that_has_just_been_started_has_no_lock_yet(stores, tmp_path, server) -> None:
    a, b = stores
    a.take("cuda:0", "one")
    server.kill()
    server.wait()
    assert not b.take("cuda:0", "two")
    age(tmp_path)
    assert b.take("cuda:0", "two")


def test_a_claim_of_before_a_clock_was_set_back_does_not_keep_a_device_for_a_year(stores, tmp_path, server) -> None:
    a, b = stores
    a.take("cuda:0", "one")
    server.kill()
    server.wait()
    ahead = time.time() + 365 * 86_400
    for path in (tmp_path / "claims").glob("*.json"):
        os.utime(path, (ahead, ahead))
    assert b.take("cuda:0", "two")


def test_a_next_server_of_the_same_store_goes_on_with_the_claims(stores, tmp_path, server) -> None:
    a, b = stores
    a.take("cuda:0", "one")
    a.take("cuda:1", "two")
    server.kill()
    server.wait()
    heir = DeviceClaims(tmp_path / "a", tmp_path / "run-a", identify(os.getpid()), tmp_path / "claims")
    heir.keep({"cuda:0": ("one",)})
    age(tmp_path)
    assert not b.take("cuda:0", "three")
    assert b.take("cuda:1", "three")


def test_what_an_earlier_server_left_is_given_up_by_the_next(stores, tmp_path) -> None:
    a, b = stores
    a.take("cuda:0", "one")
    DeviceClaims(tmp_path / "a", tmp_path / "run-a", identify(os.getpid()), tmp_path / "claims").keep({})
    assert b.take("cuda:0", "two")


def test_where_nobody_uses_a_gpu_nothing_is_written(stores, tmp_path) -> None:
    _, b = stores
    b.keep({})
    assert b.elsewhere() == {}
    assert not (tmp_path / "claims").exists()


def test_a_grant_of_what_is_not_ours_is_taken_back_in_the_same_transaction(stores, tmp_path) -> None:
    a, b = stores
    ledger = Ledger.open(sqlite_url(tmp_path / "edt.sqlite"))
    ledger.claims = b
    slots = (Slot(id=0, host="h", device="cuda:0"), Slot(id=1, host="h", device="cuda:1"), Slot(id=2, host="h"))
    ledger.change(lambda change: change.apply(SlotsChanged(slots)))
    a.take("cuda:0", "theirs")
    _, outcome = ledger.change(lambda change: change.apply(JobArrived("mine", 5000, 1, "default")))
    assert ledger.core.holding("mine") == (1,)
    assert ledger.core.leaving("mine") == ()
    assert [slot.id for slot in outcome.allocations["mine"].slots] == [1]
    assert list(a.elsewhere()) == ["cuda:1"]
    assert Ledger(ledger.store).core.digest() == ledger.core.digest()
    ledger.change(lambda change: change.apply(SlotReleased("mine", 1)))
    ledger.change(lambda change: change.apply(JobGone("mine")))
    assert a.elsewhere() == {}
    ledger.close()


def test_a_device_is_ours_while_somebody_is_leaving_it_that_is_not_offered_any_more(stores, tmp_path) -> None:
    a, b = stores
    ledger = Ledger.open(sqlite_url(tmp_path / "edt.sqlite"))
    ledger.claims = b
    ledger.change(lambda change: change.apply(SlotsChanged((Slot(id=0, host="h", device="cuda:0"),))))
    ledger.change(lambda change: change.apply(JobArrived("mine", 5000, 1, "default")))
    ledger.change(lambda change: change.apply(SlotsChanged(())))
    assert ledger.core.leaving("mine") == (0,)
    assert not a.take("cuda:0", "theirs")
    ledger.change(lambda change: change.apply(SlotReleased("mine", 0)))
    assert a.take("cuda:0", "theirs")
    ledger.close()
