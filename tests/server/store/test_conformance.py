"""What every backend of the store must do. A backend subclasses `StoreConformance` and says where its database is."""

from __future__ import annotations

import threading
from dataclasses import fields, replace

import msgspec
import pytest

from edt_sdk.schemas.control import ProcessIdentity
from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobProgress, JobState
from edt_sdk.schemas.registered import Registered
from edt_server.store import CatalogueRow, JobRow, Lease, Store, Use
from edt_server.store import store as store_module


class StoreConformance:
    """Needs a fixture `url` that names an empty database."""

    @pytest.fixture
    def store(self, url):
        store = Store.open(url)
        yield store
        store.close()

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def test_a_job_comes_back_as_it_was(self, store, job_row):
        row = job_row()
        with store.write() as writer:
            writer.add_job(row)
        assert store.job(row.id) == row
        assert store.jobs() == [row]

    def test_a_job_with_nothing_optional(self, store, job_row):
        row = job_row(started=None, ended=None, supervisor=None, shards=None, progress=None, public_key="", message="")
        with store.write() as writer:
            writer.add_job(row)
        assert store.job(row.id) == row

    def test_an_unknown_job_is_none(self, store):
        assert store.job("nobody") is None

    def test_an_id_is_taken_once(self, store, job_row):
        with store.write() as writer:
            writer.add_job(job_row())
        with pytest.raises(Conflict, match="job-1"), store.write() as writer:
            writer.add_job(job_row(owner="ben"))
        assert store.job("job-1").owner == "ana"

    def test_every_field_but_the_id_can_be_changed(self, store, job_row):
        before = job_row()
        after = replace(
            before,
            owner="ben",
            spec=replace_spec(before, name="other"),
            state=JobState.FAILED,
            state_since=1.0,
            created=2.0,
            started=None,
            ended=3.5,
            attempt=3,
            message="broken",
            interpreter="/usr/bin/python3",
            threads_per_slot=1,
            supervisor=None,
            public_key="y",
            shards=None,
            last_report=2**40,
            progress=None,
            priority=1,
            max_workers=9,
            instance_group="night",
            project="p",
            definition="d",
            metric="m",
        )
        changed = {f.name: getattr(after, f.name) for f in fields(JobRow) if f.name != "id"}
        assert all(value != getattr(before, name) for name, value in changed.items())
        with store.write() as writer:
            writer.add_job(before)
        with store.write() as writer:
            assert writer.update_job(before.id, **changed) == after
            assert writer.job(before.id) == after
        assert store.job(before.id) == after

    def test_a_change_leaves_the_other_fields(self, store, job_row):
        with store.write() as writer:
            writer.add_job(job_row())
            row = writer.update_job("job-1", progress=JobProgress(update=13), last_report=18)
        assert row == job_row(progress=JobProgress(update=13), last_report=18)
        assert store.job("job-1") == row

    @pytest.mark.parametrize("name", ["colour", "id", "to_row", "metadata"])
    def test_only_fields_of_a_row_can_be_changed(self, store, job_row, name):
        with store.write() as writer:
            writer.add_job(job_row())
            with pytest.raises(TypeError, match=name):
                writer.update_job("job-1", **{name: "x"})
        assert store.job("job-1") == job_row()

    def test_an_unknown_job_cannot_be_changed_or_deleted(self, store):
        with store.write() as writer:
            with pytest.raises(NotFound, match="nobody"):
                writer.update_job("nobody", state=JobState.KILLED)
            with pytest.raises(NotFound, match="nobody"):
                writer.delete_job("nobody")

    def test_the_newest_job_comes_first(self, store, job_row):
        with store.write() as writer:
            for job, created in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
                writer.add_job(job_row(job, created=created))
        assert [row.id for row in store.jobs()] == ["c", "b", "a"]

    def test_jobs_by_owner_and_state(self, store, job_row):
        with store.write() as writer:
            for n, (owner, state) in enumerate(
                [("ana", JobState.RUNNING), ("ben", JobState.RUNNING), ("ana", JobState.FINISHED)]
            ):
                writer.add_job(job_row(f"{n}", owner=owner, state=state, created=float(n)))
        assert [row.id for row in store.jobs(owner="ana")] == ["2", "0"]
        assert [row.id for row in store.jobs(states=[JobState.RUNNING])] == ["1", "0"]
        assert [row.id for row in store.jobs(owner="ana", states=iter([JobState.RUNNING]))] == ["0"]
        assert store.jobs(states=[]) == []
        assert store.jobs(owner="ANA") == []

    def test_a_loss_that_is_no_number_is_null(self, store, job_row):
        progress = JobProgress(update=1, loss=float("nan"), accuracy=float("inf"))
        with store.write() as writer:
            writer.add_job(job_row(progress=progress))
        assert store.job("job-1").progress == JobProgress(update=1)

    def test_any_text_can_be_kept(self, store, job_row):
        """A message quotes what a process wrote before it died."""
        row = job_row(message="half a line\0\ud800 – " + "x" * 1_000_000, interpreter="/opt/ünï/\U0001f600/python")
        with store.write() as writer:
            writer.add_job(row)
            event = writer.append("x", job="job-1", data={"said": "a\0b", "long": "y" * 300_000}, time=0.1, text="c\0d")
        kept = store.job("job-1")
        assert kept.message == "half a line�� – " + "x" * 1_000_000
        assert kept.interpreter == row.interpreter
        assert [each.data for each in store.events()] == [event.data]
        assert store.events()[0].text == "c�d"

    @pytest.mark.parametrize("number", [0.1 + 0.2, 1_763_712_345.123456, 5e-324, 1.7976931348623157e308])
    def test_a_float_comes_back_to_the_last_bit(self, store, job_row, number):
        with store.write() as writer:
            writer.add_job(job_row(state_since=number))
            writer.append("x", job=None, data={"number": number}, time=number)
        assert store.job("job-1").state_since.hex() == number.hex()
        assert store.events()[0].time.hex() == store.events()[0].data["number"].hex() == number.hex()

    def test_numbers_that_json_does_not_have_are_null(self, store):
        with store.write() as writer:
            event = writer.append("x", job=None, data={"a": [float("nan"), float("-inf")], "b": 2**53}, time=0.0)
        assert event.data == store.events()[0].data == {"a": [None, None], "b": 2**53}

    # --- events -------------------------------------------------------------------------------------------------------

    def test_events_are_numbered_in_order_and_come_back_as_they_were(self, store):
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

    def test_events_by_job_kind_and_number(self, store):
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

    def test_events_of_several_jobs_and_up_to_a_number(self, store):
        with store.write() as writer:
            seqs = [writer.append("x", job=job, data={}, time=0.0).seq for job in ["a", "b", None, "c", "a"]]
        assert [seqs.index(event.seq) for event in store.events(jobs=["a", "c"])] == [0, 3, 4]
        assert [seqs.index(event.seq) for event in store.events(jobs=iter("ac"), limit=2)] == [0, 3]
        assert store.events(jobs=[]) == []
        assert [seqs.index(event.seq) for event in store.events(until=seqs[2])] == [0, 1, 2]
        assert [seqs.index(event.seq) for event in store.events(kinds=["x"], after=seqs[0], until=seqs[3])] == [1, 2, 3]

    def test_the_newest_number(self, store):
        assert store.newest() == 0
        with store.write() as writer:
            seq = [writer.append("x", job=None, data={}, time=0.0).seq for _ in range(3)][-1]
        assert store.newest() == seq

    def test_pages_make_up_the_whole(self, store, monkeypatch):
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

    def test_names_by_id(self, store, job_row):
        assert store.names() == {}
        with store.write() as writer:
            writer.add_job(job_row("a"))
            row = job_row("b")
            writer.add_job(replace(row, spec=replace_spec(row, name='"quoted" \\ ünï')))
        assert store.names() == {"a": "Ziffern – digits", "b": '"quoted" \\ ünï'}

    def test_pages_of_jobs_make_up_the_whole(self, store, job_row):
        with store.write() as writer:
            for n in range(20):
                writer.add_job(job_row(f"job-{n * 7 % 20}", created=float(n // 3), owner="ana" if n % 2 else "ben"))
        for which in ({}, {"owner": "ana"}):
            pages, before = [], None
            while page := store.jobs(**which, before=before, limit=3):
                pages += page
                before = page[-1].created, page[-1].id
            assert pages == store.jobs(**which)

    def test_data_must_be_json(self, store):
        with pytest.raises(TypeError), store.write() as writer:
            writer.append("x", job=None, data={"a": object()}, time=0.0)
        assert store.events() == []

    def test_the_events_of_a_deleted_job_stay(self, store, job_row):
        with store.write() as writer:
            writer.add_job(job_row())
            event = writer.append("job_arrived", job="job-1", data={}, time=0.0)
        with store.write() as writer:
            writer.delete_job("job-1")
        assert store.job("job-1") is None
        assert store.events(job="job-1") == [event]

    # --- snapshots and leases -----------------------------------------------------------------------------------------

    def test_the_newest_snapshot_is_the_only_one(self, store):
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

    # --- catalogue ----------------------------------------------------------------------------------------------------

    def test_a_thing_of_the_catalogue_comes_back_as_it_was(self, store):
        row = CatalogueRow("ziffern-1", "ana", "dataset", "Ziffern", 1.25, 2.5, {"path": "ü", "files": None, "a": [1]})
        with store.write() as writer:
            writer.add_entry(row)
            assert writer.entry("ziffern-1") == row
            assert writer.entry("nobody") is None
        assert store.entries("ana") == [row]
        assert store.entries("ben") == []

    def test_a_name_is_taken_once_by_an_owner_for_a_kind(self, store):
        row = CatalogueRow("one", "ana", "dataset", "digits", 1.0, 1.0, {})
        with store.write() as writer:
            writer.add_entry(row)
        with pytest.raises(Conflict, match="dataset digits"), store.write() as writer:
            writer.add_entry(replace(row, id="two"))
        with pytest.raises(Conflict), store.write() as writer:
            writer.add_entry(replace(row, name="another"))
        with store.write() as writer:
            for other in ({"kind": "model"}, {"owner": "ben"}, {"name": "Digits"}):
                writer.add_entry(replace(row, id=str(other), **other))
        assert [entry.name for entry in store.entries("ana", "dataset")] == ["Digits", "digits"]
        assert [entry.id for entry in store.entries("ana", "dataset", "digits")] == ["one"]
        assert len(store.entries("ana")) == 3

    def test_a_thing_of_the_catalogue_is_changed_and_removed(self, store):
        row = CatalogueRow("one", "ana", "model", "digits", 1.0, 1.0, {"max_workers": 1})
        with store.write() as writer:
            writer.add_entry(row)
        with store.write() as writer:
            changed = writer.update_entry("one", {"max_workers": 2}, 3.5)
        assert changed == replace(row, data={"max_workers": 2}, changed=3.5)
        assert store.entries("ana") == [changed]
        with store.write() as writer:
            writer.delete_entry("one")
        assert store.entries("ana") == []
        for work in (lambda w: w.delete_entry("one"), lambda w: w.update_entry("one", {}, 1.0)):
            with pytest.raises(NotFound, match="one"), store.write() as writer:
                work(writer)

    def test_which_jobs_use_the_catalogue(self, store, job_row):
        def job(name, **changes):
            state = JobState.FINISHED if name == "job-4" else JobState.RUNNING
            row = job_row(name, created=float(name[-1]), state=state)
            return replace(row, spec=replace_spec(row, **changes), owner="ben" if name == "job-5" else "ana")

        with store.write() as writer:
            writer.add_job(job("job-1"))
            writer.add_job(job("job-2", registered=Registered(dataset="d")))
            writer.add_job(job("job-3", registered=Registered(hyperparameters={"epochs": 1})))
            writer.add_job(job("job-4", registered=Registered(dataset="d", model="m")))
            writer.add_job(job("job-5", registered=Registered(dataset="d")))
        assert store.uses("ana") == [Use("job-4", True, "m", "d"), Use("job-2", False, "", "d")]

    def test_a_lease_is_held_by_one_until_it_expires_or_is_given_back(self, store):
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
            assert writer.renew_lease("server", 2, expires=113.0, url="http://moved/")
        assert store.lease("server") == replace(theirs, expires=113.0, url="http://moved/")
        with store.write() as writer:
            assert writer.release_lease("server", 2)
            assert not writer.release_lease("server", 2)
            assert not writer.renew_lease("server", 2, expires=200.0)
        assert store.lease("server") == Lease("server", None, 0.0, "", 2)
        with store.write() as writer:
            assert writer.take_lease("server", process(1), now=100.0, expires=105.0).fencing == 3
            assert not writer.renew_lease("nothing", 1, expires=200.0)

    def test_the_lease_of_a_dead_process_is_free_before_it_expires(self, store):
        with store.write() as writer:
            held = writer.take_lease("server", process(1), now=100.0, expires=105.0)
            assert writer.take_lease("server", process(2), now=101.0, expires=106.0, dead=held.fencing - 1) is None
            assert writer.take_lease("server", process(2), now=101.0, expires=106.0, dead=held.fencing).fencing == 2
            assert writer.take_lease("server", process(3), now=101.0, expires=106.0, dead=held.fencing) is None

    def test_of_many_that_take_a_lease_at_once_one_gets_it(self, store, url):
        others = [Store.open(url) for _ in range(3)]
        got: list[Lease | None] = []
        start = threading.Barrier(4)

        def take(which: Store, pid: int) -> None:
            start.wait(30)
            with which.write() as writer:
                got.append(writer.take_lease("server", process(pid), now=100.0, expires=105.0))

        threads = [threading.Thread(target=take, args=(which, n)) for n, which in enumerate([store, *others])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for other in others:
            other.close()
        assert len(got) == 4
        assert [lease for lease in got if lease is not None] == [store.lease("server")]

    # --- transactions -------------------------------------------------------------------------------------------------

    def test_an_exception_undoes_everything_and_passes(self, store, job_row):
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

    def test_reads_see_only_what_is_committed(self, store, job_row):
        with store.write() as writer:
            writer.add_job(job_row())
            assert store.job("job-1") is None
            assert writer.job("job-1") == job_row()
        assert store.job("job-1") is not None

    def test_a_transaction_within_another_is_refused(self, store):
        with store.write(), pytest.raises(RuntimeError, match="inside"), store.write():
            pass
        with store.write() as writer:
            writer.append("x", job=None, data={}, time=0.0)

    def test_also_through_a_guarded_store(self, store):
        guarded = store.guarded(lambda writer: None)
        with store.write(), pytest.raises(RuntimeError, match="inside"), guarded.write():
            pass

    def test_what_was_committed_is_there_after_opening_again(self, store, url, job_row):
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

    def test_writers_of_several_stores_and_threads_wait_for_each_other(self, store, url, job_row):
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
            thread.join(60)
        other.close()
        assert store.job("job-1").attempt == 40
        assert len(set(seqs)) == 40

    def test_who_has_seen_a_number_has_seen_all_below(self, store, url):
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
            thread.join(60)
        all_of_them = [event.seq for event in store.events()]
        servers[1].close()
        assert len(all_of_them) == 480
        assert followed == [all_of_them, all_of_them]


def process(pid: int) -> ProcessIdentity:
    return ProcessIdentity(host="h", boot_id="b", pid_namespace="n", pid=pid, start_ticks=1)


def replace_spec(row: JobRow, **changes):
    return msgspec.structs.replace(row.spec, **changes)


class TestSQLite(StoreConformance):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path / 'edt.db'}"


class TestPostgreSQL(StoreConformance):
    @pytest.fixture
    def url(self, cluster):
        return cluster.new_database()
