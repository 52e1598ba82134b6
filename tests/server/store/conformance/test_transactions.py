"""Transactions: all or nothing, one writer at a time, numbers that nobody who follows can miss."""

from __future__ import annotations

import threading

import pytest

from edt_server.store import Store


def test_an_exception_undoes_everything_and_passes(store, job_row):
    with store.write() as writer:
        writer.add_job(job_row("old"))

    def fail_halfway() -> None:
        with store.write() as writer:
            writer.add_job(job_row("new"))
            writer.update_job("old", message="changed")
            writer.append("x", job="new", data={}, time=0.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert [row.id for row in store.jobs()] == ["old"]
    assert store.job("old").message == "All is well."
    assert store.events() == []
    with store.write() as writer:
        writer.add_job(job_row("later"))
    assert store.job("later") is not None


def test_reads_see_only_what_is_committed(store, job_row):
    with store.write() as writer:
        writer.add_job(job_row())
        assert store.job("job-1") is None
        assert writer.job("job-1") == job_row()
    assert store.job("job-1") is not None


def test_a_transaction_within_another_is_refused(store):
    with store.write(), pytest.raises(RuntimeError, match="inside"), store.write():
        pass
    with store.write() as writer:
        writer.append("x", job=None, data={}, time=0.0)


def test_also_through_a_guarded_store(store):
    guarded = store.guarded(lambda writer: None)
    with store.write(), pytest.raises(RuntimeError, match="inside"), guarded.write():
        pass


def test_what_was_committed_is_there_after_opening_again(store, url, job_row):
    with store.write() as writer:
        writer.add_job(job_row())
        event = writer.append("x", job="job-1", data={"a": 1}, time=0.5)
    store.close()
    again = Store.open(url)
    assert again.jobs() == [job_row()]
    assert again.events() == [event]
    with again.write() as writer:
        assert writer.append("x", job=None, data={}, time=1.0).seq > event.seq
    again.close()


def test_writers_of_several_stores_and_threads_wait_for_each_other(store, url, job_row):
    """Read, add one, write back: no increment may be lost, no number used twice."""
    with store.write() as writer:
        writer.add_job(job_row(attempt=0))
    other = Store.open(url)
    seqs: list[int] = []

    def count(which: Store) -> None:
        for _ in range(10):
            with which.write() as writer:
                writer.update_job("job-1", attempt=writer.job("job-1").attempt + 1)
                seqs.append(writer.append("x", job=None, data={}, time=0.0).seq)

    threads = [threading.Thread(target=count, args=(which,)) for which in (store, store, other, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    other.close()
    assert store.job("job-1").attempt == 40
    assert len(set(seqs)) == 40


def test_who_has_seen_a_number_has_seen_all_below(store, url):
    """Two servers write, others follow with nothing but the last number they saw."""
    servers = [store, Store.open(url)]
    writing = threading.Event()
    writing.set()
    followed: list[list[int]] = []

    def append(which: Store) -> None:
        for n in range(40):
            with which.write() as writer:
                for _ in range(3):
                    writer.append("x", job=None, data={}, time=float(n))

    def roll_back(which: Store) -> None:
        for _ in range(20):
            try:
                with which.write() as writer:
                    writer.append("rolled back", job=None, data={}, time=0.0)
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass

    def follow(which: Store) -> None:
        seen: list[int] = []
        more = True
        while more:
            more = writing.is_set()  # read once more after the last was written
            seen += [event.seq for event in which.events(after=seen[-1] if seen else 0)]
        followed.append(seen)

    writers = [threading.Thread(target=append, args=(which,)) for which in (*servers, *servers)]
    writers += [threading.Thread(target=roll_back, args=(which,)) for which in servers]
    readers = [threading.Thread(target=follow, args=(which,)) for which in servers]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join(120)
    writing.clear()
    for thread in readers:
        thread.join(180)
    all_of_them = [event.seq for event in store.events()]
    servers[1].close()
    assert len(all_of_them) == 480
    assert followed == [all_of_them, all_of_them]
