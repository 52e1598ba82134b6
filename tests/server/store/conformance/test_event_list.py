"""The list of events: numbered in order, found by job, kind and number, and kept when their job is deleted."""

from __future__ import annotations

import pytest

from edt_server.store import store as store_module


def test_events_are_numbered_in_order_and_come_back_as_they_were(store):
    data = {"text": "ünï", "list": [1, 2.5, None, True], "deep": {"a": {}}}
    with store.write() as writer:
        first = writer.append("job_arrived", job="a", data=data, time=1.25, text="submitted")
        second = writer.append("slot_granted", job="a", data={}, time=1.5, cause=first.seq)
    with store.write() as writer:
        third = writer.append("slots_changed", job=None, data={"slots": ({"id": 1},)}, time=2.0)
    assert first.seq < second.seq < third.seq
    assert second.cause == first.seq
    assert third.data == {"slots": [{"id": 1}]}  # as it will be read
    assert store.events() == [first, second, third]
    assert first.data == data


def test_events_by_job_kind_and_number(store):
    with store.write() as writer:
        seqs = [
            writer.append(kind, job=job, data={}, time=0.0).seq
            for job, kind in [("a", "x"), ("b", "x"), ("a", "y"), (None, "x"), ("a", "x")]
        ]

    def numbers(**which) -> list[int]:
        return [seqs.index(event.seq) for event in store.events(**which)]

    assert numbers() == [0, 1, 2, 3, 4]
    assert numbers(job="a") == [0, 2, 4]
    assert numbers(kinds=["x"]) == [0, 1, 3, 4]
    assert numbers(job="a", kinds={"x"}) == [0, 4]
    assert numbers(after=seqs[1]) == [2, 3, 4]
    assert numbers(after=seqs[1], limit=2) == [2, 3]
    assert numbers(limit=0) == []
    assert numbers(kinds=[]) == []
    assert numbers(job="nobody") == []


def test_events_of_several_jobs(store):
    with store.write() as writer:
        seqs = [writer.append("x", job=job, data={}, time=0.0).seq for job in ["a", "b", None, "c", "a"]]
    assert [seqs.index(event.seq) for event in store.events(jobs=["a", "c"])] == [0, 3, 4]
    assert [seqs.index(event.seq) for event in store.events(jobs=iter("ac"), limit=2)] == [0, 3]
    assert store.events(jobs=[]) == []


def test_the_newest_number(store):
    assert store.newest() == 0
    with store.write() as writer:
        seq = [writer.append("x", job=None, data={}, time=0.0).seq for _ in range(3)][-1]
    assert store.newest() == seq


def test_pages_make_up_the_whole(store, monkeypatch):
    """However rare or frequent the kinds are, and however wide the windows of numbers that are looked through."""
    monkeypatch.setattr(store_module, "_LEAST_WINDOW", 4)
    with store.write() as writer:
        for n in range(300):
            kind = "rare" if n in (3, 150, 299) else "often" if n % 3 else "other"
            writer.append(kind, job=f"{n % 7}", data={"n": n}, time=0.0)
    for which in ({"kinds": ["often", "rare"]}, {"kinds": ["rare"]}, {"jobs": ["2", "5"]}, {"kinds": ["none"]}):
        for size in (1, 2, 50, 1000):
            pages, after = [], 0
            while page := store.events(**which, after=after, limit=size):
                assert len(page) <= size
                pages += page
                after = page[-1].seq
            assert pages == store.events(**which)


def test_data_must_be_json(store):
    with pytest.raises(TypeError), store.write() as writer:
        writer.append("x", job=None, data={"a": object()}, time=0.0)
    assert store.events() == []


def test_the_events_of_a_deleted_job_stay(store, job_row):
    with store.write() as writer:
        writer.add_job(job_row())
        event = writer.append("job_arrived", job="job-1", data={}, time=0.0)
    with store.write() as writer:
        writer.delete_job("job-1")
    assert store.job("job-1") is None
    assert store.events(job="job-1") == [event]
