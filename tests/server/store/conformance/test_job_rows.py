"""Rows of jobs: every field comes back as it was, any text and any number, and lists in order."""

from __future__ import annotations

from dataclasses import fields, replace

import msgspec
import pytest

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobProgress, JobSettings, JobState
from edt_server.store import JobRow
from tests.server.store.conformance.specs import with_spec


def test_a_job_comes_back_as_it_was(store, job_row):
    row = job_row()
    with store.write() as writer:
        writer.add_job(row)
    assert store.job(row.id) == row
    assert store.jobs() == [row]


def test_a_job_with_nothing_optional(store, job_row):
    row = job_row(started=None, ended=None, supervisor=None, shards=None, progress=None, public_key="", message="")
    with store.write() as writer:
        writer.add_job(row)
    assert store.job(row.id) == row


def test_an_unknown_job_is_none(store):
    assert store.job("nobody") is None


def test_an_id_is_taken_once(store, job_row):
    with store.write() as writer:
        writer.add_job(job_row())
    with pytest.raises(Conflict, match="job-1"), store.write() as writer:
        writer.add_job(job_row(owner="ben"))
    assert store.job("job-1").owner == "ana"


def test_every_field_but_the_id_can_be_changed(store, job_row):
    before = job_row()
    after = replace(
        before,
        owner="ben",
        spec=with_spec(before, name="other"),
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
        settings=JobSettings(priority=1, max_workers=9, instance_group="night"),
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


def test_a_change_leaves_the_other_fields(store, job_row):
    with store.write() as writer:
        writer.add_job(job_row())
        row = writer.update_job("job-1", progress=JobProgress(update=13), last_report=18)
    assert row == job_row(progress=JobProgress(update=13), last_report=18)
    assert store.job("job-1") == row


@pytest.mark.parametrize("name", ["colour", "id", "value", "metadata"])
def test_only_fields_of_a_row_can_be_changed(store, job_row, name):
    with store.write() as writer:
        writer.add_job(job_row())
        with pytest.raises(TypeError, match=name):
            writer.update_job("job-1", **{name: "x"})
    assert store.job("job-1") == job_row()


def test_an_unknown_job_cannot_be_changed_or_deleted(store):
    with store.write() as writer:
        with pytest.raises(NotFound, match="nobody"):
            writer.update_job("nobody", state=JobState.KILLED)
        with pytest.raises(NotFound, match="nobody"):
            writer.delete_job("nobody")


def test_the_newest_job_comes_first(store, job_row):
    with store.write() as writer:
        for job, created in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
            writer.add_job(job_row(job, created=created))
    assert [row.id for row in store.jobs()] == ["c", "b", "a"]


def test_jobs_by_project_and_experiment(store, job_row):
    labels = [("mnist", "rates"), ("mnist", ""), ("mnist", "rates"), ("", ""), ("ä 'b'", "rates"), ("MNIST", "sizes")]
    with store.write() as writer:
        for n, (project, experiment) in enumerate(labels):
            settings = replace_settings(job_row(), project=project, experiment=experiment)
            writer.add_job(job_row(f"{n}", settings=settings, created=float(n), state_since=10.0 + n))
        others = replace_settings(job_row(), project="mnist", experiment="rates")
        writer.add_job(job_row("of ben", owner="ben", settings=others))
    assert [row.id for row in store.jobs(owner="ana", project="mnist")] == ["2", "1", "0"]
    assert [row.id for row in store.jobs(owner="ana", project="mnist", experiment="rates", limit=1)] == ["2"]
    assert [row.id for row in store.jobs(owner="ana", experiment="rates")] == ["4", "2", "0"]
    assert store.jobs(project="mni%") == []
    assert store.labels("ana") == [
        ("MNIST", "sizes", 1, 15.0),
        ("mnist", "", 1, 11.0),
        ("mnist", "rates", 2, 12.0),
        ("ä 'b'", "rates", 1, 14.0),
    ]
    assert store.labels("nobody") == []


def replace_settings(row, **changes):
    return msgspec.structs.replace(row.settings, **changes)


def test_jobs_by_owner_and_state(store, job_row):
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


def test_a_loss_that_is_no_number_is_null(store, job_row):
    progress = JobProgress(update=1, loss=float("nan"), accuracy=float("inf"))
    with store.write() as writer:
        writer.add_job(job_row(progress=progress))
    assert store.job("job-1").progress == JobProgress(update=1)


def test_any_text_can_be_kept(store, job_row):
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
def test_a_float_comes_back_to_the_last_bit(store, job_row, number):
    with store.write() as writer:
        writer.add_job(job_row(state_since=number))
        writer.append("x", job=None, data={"number": number}, time=number)
    assert store.job("job-1").state_since.hex() == number.hex()
    assert store.events()[0].time.hex() == store.events()[0].data["number"].hex() == number.hex()


def test_numbers_that_json_does_not_have_are_null(store):
    with store.write() as writer:
        event = writer.append("x", job=None, data={"a": [float("nan"), float("-inf")], "b": 2**53}, time=0.0)
    assert event.data == store.events()[0].data == {"a": [None, None], "b": 2**53}


def test_names_by_id(store, job_row):
    assert store.names() == {}
    with store.write() as writer:
        writer.add_job(job_row("a"))
        row = job_row("b")
        writer.add_job(replace(row, spec=with_spec(row, name='"quoted" \\ ünï')))
    assert store.names() == {"a": "Ziffern – digits", "b": '"quoted" \\ ünï'}


def test_pages_of_jobs_make_up_the_whole(store, job_row):
    with store.write() as writer:
        for n in range(20):
            row = job_row(f"job-{n * 7 % 20}", created=float(n // 3), owner="ana" if n % 2 else "ben")
            writer.add_job(replace(row, spec=with_spec(row, search=("", "s-1", "s-2")[n % 3])))
    assert {row.spec.search for row in store.jobs(search="s-1")} == {"s-1"}
    assert [len(store.jobs(search=each)) for each in ("", "s-1", "s-2", "s")] == [7, 7, 6, 0]
    for which in ({}, {"owner": "ana"}, {"search": ""}, {"owner": "ana", "search": "s-1"}):
        pages, before = [], None
        while page := store.jobs(**which, before=before, limit=3):
            pages += page
            before = page[-1].created, page[-1].id
        assert pages == store.jobs(**which)
