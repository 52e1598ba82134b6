"""Snapshots and leases: the newest snapshot alone, and one holder of a lease at a time, whoever else wants it."""

from __future__ import annotations

import threading
from dataclasses import replace

from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.store import Lease, Store


def process(pid: int) -> ProcessIdentity:
    return ProcessIdentity(host="h", boot_id="b", pid_namespace="n", pid=pid, start_ticks=1)


def test_the_newest_snapshot_is_the_only_one(store):
    assert store.snapshot() is None
    with store.write() as writer:
        writer.put_snapshot(7, "1", b"\x00\xff" * 100_000)
    first = store.snapshot()
    assert (first.seq, first.version, first.data) == (7, "1", b"\x00\xff" * 100_000)
    assert first.created > 1_700_000_000
    with store.write() as writer:
        writer.put_snapshot(7, "2", b"")
        writer.put_snapshot(2**40, "3", b"newer")
    newest = store.snapshot()
    assert (newest.seq, newest.version, newest.data) == (2**40, "3", b"newer")


def test_a_lease_is_held_by_one_until_it_expires_or_is_given_back(store):
    assert store.lease("server") is None
    with store.write() as writer:
        mine = writer.take_lease("server", process(1), now=100.0, expires=105.0, url="http://one/")
        assert writer.take_lease("server", process(2), now=104.5, expires=110.0) is None
        assert writer.take_lease("server", process(1), now=104.5, expires=110.0) is None
    assert store.lease("server") == mine
    assert mine == Lease("server", process(1), 105.0, "http://one/", 1)
    with store.write() as writer:
        assert writer.renew_lease("server", 1, expires=108.0)
        assert writer.take_lease("server", process(2), now=107.0, expires=110.0) is None
        assert writer.lease("server") == replace(mine, expires=108.0)
        assert writer.take_lease("other", process(2), now=100.0, expires=110.0).fencing == 1
    with store.write() as writer:
        theirs = writer.take_lease("server", process(2), now=108.0, expires=112.0, url="http://two/")
    assert (theirs.fencing, theirs.holder, theirs.url) == (2, process(2), "http://two/")
    with store.write() as writer:
        assert not writer.renew_lease("server", 1, expires=200.0)
        assert not writer.release_lease("server", 1)
        assert writer.renew_lease("server", 2, expires=113.0)
    assert store.lease("server") == replace(theirs, expires=113.0)
    with store.write() as writer:
        assert writer.release_lease("server", 2)
        assert not writer.release_lease("server", 2)
        assert not writer.renew_lease("server", 2, expires=200.0)
    assert store.lease("server") == Lease("server", None, 0.0, "", 2)
    with store.write() as writer:
        assert writer.take_lease("server", process(1), now=100.0, expires=105.0).fencing == 3
        assert not writer.renew_lease("nothing", 1, expires=200.0)


def test_the_lease_of_a_dead_process_is_free_before_it_expires(store):
    with store.write() as writer:
        held = writer.take_lease("server", process(1), now=100.0, expires=105.0)
        assert writer.take_lease("server", process(2), now=101.0, expires=106.0, dead=held.fencing - 1) is None
        assert writer.take_lease("server", process(2), now=101.0, expires=106.0, dead=held.fencing).fencing == 2
        assert writer.take_lease("server", process(3), now=101.0, expires=106.0, dead=held.fencing) is None


def test_of_many_that_take_a_lease_at_once_one_gets_it(store, url):
    others = [Store.open(url) for _ in range(3)]
    got: list[Lease | None] = []
    start = threading.Barrier(4)

    def take(which: Store, pid: int) -> None:
        start.wait(180)
        with which.write() as writer:
            got.append(writer.take_lease("server", process(pid), now=100.0, expires=105.0))

    threads = [threading.Thread(target=take, args=(which, n)) for n, which in enumerate([store, *others])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    for other in others:
        other.close()
    assert len(got) == 4
    assert [lease for lease in got if lease is not None] == [store.lease("server")]
