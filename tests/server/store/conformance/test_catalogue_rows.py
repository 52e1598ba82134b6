"""Things of the catalogue: one of a name for each owner and kind, and which jobs use them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobState
from edt_sdk.schemas.registered import Registered
from edt_server.store import CatalogueRow, Use
from tests.server.store.conformance.specs import with_spec


def test_a_thing_of_the_catalogue_comes_back_as_it_was(store):
    row = CatalogueRow("ziffern-1", "ana", "dataset", "Ziffern", 1.25, 2.5, {"path": "ü", "files": None, "a": [1]})
    with store.write() as writer:
        writer.add_entry(row)
        assert writer.entry("ziffern-1") == row
        assert writer.entry("nobody") is None
    assert store.entries("ana") == [row]
    assert store.entries("ben") == []


def test_a_name_is_taken_once_by_an_owner_for_a_kind(store):
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
    assert [entry.id for entry in store.entries("ana", "dataset") if entry.name == "digits"] == ["one"]
    assert len(store.entries("ana")) == 3


def test_a_thing_of_the_catalogue_is_changed_and_removed(store):
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


def test_which_jobs_use_the_catalogue(store, job_row):
    def job(name, **changes):
        state = JobState.FINISHED if name == "job-4" else JobState.RUNNING
        row = job_row(name, created=float(name[-1]), state=state)
        return replace(row, spec=with_spec(row, **changes), owner="ben" if name == "job-5" else "ana")

    with store.write() as writer:
        writer.add_job(job("job-1"))
        writer.add_job(job("job-2", registered=Registered(dataset="d")))
        writer.add_job(job("job-3", registered=Registered(hyperparameters={"epochs": 1})))
        writer.add_job(job("job-4", registered=Registered(dataset="d", model="m")))
        writer.add_job(job("job-5", registered=Registered(dataset="d")))
    assert store.uses("ana") == [Use("job-4", True, "m", "d"), Use("job-2", False, "", "d")]
