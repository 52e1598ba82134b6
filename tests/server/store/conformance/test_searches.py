"""Searches: what one event led to is written together, and comes back as it was."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from sqlalchemy.exc import IntegrityError

from edt_sdk.schemas.errors import Conflict, NotFound
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.search.space import choice, log
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import Decision, SearchState, TrialReport, TrialState
from edt_server.store.search_rows import SearchRow, TrialRow

SPEC = SearchSpec(
    job=JobSpec(name="digits", main="train.py", max_workers=4, args=("--lr", "{lr}"), tags=("ä",)),
    space={"lr": log(1e-4, 1e-1), "width": choice(32, "x", True)},
    metric="test_accuracy",
    trials=9,
    points=({"lr": 0.1, "width": True},),
).resolved()
ROW = SearchRow(
    id="digits-1",
    name="digits",
    owner="ana",
    spec=SPEC,
    state=SearchState.RUNNING,
    message="All is well, ä.",
    created=1.25,
    ended=None,
    plugin_state=b"\x00\xff",
)
TRIAL = TrialRow(
    search="digits-1",
    number=3,
    rung=1,
    bracket=2,
    params={"lr": 0.1, "width": True},
    state=TrialState.HELD,
    created=2.5,
    value=0.1 + 0.2,
    epochs=9,
    job="job-3",
    parent=1,
    ended=None,
    message="",
    sampler_state=b"\x01",
)
DECISION = Decision(index=1, kind="promote", trial=3, rung=0, inputs="0123456789abcdef", text="trial 3 goes on – ü")
STOP = Decision(index=2, kind="stop", text="stopped", outside=True, event={"type": "SearchStopped"})


@pytest.fixture
def with_search(store):
    with store.write() as writer:
        writer.searches.add_search(ROW)
    return store


def test_a_search_comes_back_as_it_was(with_search):
    assert with_search.searches.search("digits-1") == ROW
    assert with_search.searches.search("nothing") is None
    assert with_search.searches.searches(owner="ben") == []


def test_a_name_is_taken_once_by_an_owner(with_search):
    for other in ({"id": "digits-2"}, {"name": "other"}):
        with pytest.raises(Conflict), with_search.write() as writer:
            writer.searches.add_search(replace(ROW, **other))
    with with_search.write() as writer:
        writer.searches.add_search(replace(ROW, id="digits-2", owner="ben"))
    assert {row.owner for row in with_search.searches.searches(name="digits")} == {"ana", "ben"}


def test_searches_are_listed_newest_first_and_by_pages(store):
    with store.write() as writer:
        for number in range(5):
            state = SearchState.FINISHED if number % 2 else SearchState.RUNNING
            writer.searches.add_search(
                replace(ROW, id=f"s{number}", name=f"s{number}", created=number // 2, state=state)
            )
    assert [row.id for row in store.searches.searches()] == ["s4", "s3", "s2", "s1", "s0"]
    assert [row.id for row in store.searches.searches(before=(1.0, "s3"), limit=2)] == ["s2", "s1"]
    assert [row.id for row in store.searches.searches(states=[SearchState.FINISHED])] == ["s3", "s1"]


def test_a_search_is_changed(with_search):
    with with_search.write() as writer:
        changed = writer.searches.update_search("digits-1", state=SearchState.STOPPED, ended=9.5, best=3, outside=2)
    assert changed == replace(ROW, state=SearchState.STOPPED, ended=9.5, best=3, outside=2)
    assert with_search.searches.search("digits-1") == changed
    with pytest.raises(NotFound), with_search.write() as writer:
        writer.searches.update_search("nothing", best=1)
    with pytest.raises(TypeError, match="owner"), with_search.write() as writer:
        writer.searches.update_search("digits-1", owner="ben")


def test_what_an_event_led_to_is_written_together(with_search):
    report = TrialReport(trial=3, budget=9, metrics={"test_accuracy": 0.1 + 0.2, "f1": None}, seq=17)
    with with_search.write() as writer:
        writer.searches.take("digits-1", reports=[report], decisions=[DECISION, STOP], trials=[TRIAL])
    assert with_search.searches.reports("digits-1") == [report]
    assert with_search.searches.decisions("digits-1") == [DECISION, STOP]
    assert with_search.searches.decisions("digits-1", after=1) == [STOP]
    assert with_search.searches.trials("digits-1") == [TRIAL]
    later = replace(TRIAL, state=TrialState.FAILED)
    report = TrialReport(trial=4, budget=1, metrics={}, seq=18)
    with pytest.raises(IntegrityError), with_search.write() as writer:
        writer.searches.take("digits-1", reports=[report], trials=[later], decisions=[STOP])
    assert with_search.searches.reports("digits-1", since=17) == [], "an index of the log is there already"
    assert with_search.searches.trials("digits-1") == [TRIAL]


def test_the_first_of_two_reports_counts(with_search):
    reports = [TrialReport(trial=3, budget=9, metrics={"loss": value}, seq=seq) for seq, value in ((1, 0.5), (2, 0.25))]
    for report in reports:
        with with_search.write() as writer:
            writer.searches.take("digits-1", reports=[report])
    assert with_search.searches.reports("digits-1") == reports[:1]


def test_a_value_that_json_lacks_is_null(with_search):
    with with_search.write() as writer:
        report = TrialReport(trial=0, budget=1, metrics={"loss": math.nan, "f1": math.inf}, seq=1)
        writer.searches.take("digits-1", reports=[report])
    assert with_search.searches.reports("digits-1")[0].metrics == {"loss": None, "f1": None}


def test_trials_are_added_and_changed_in_one_go_and_read_by_pages(with_search):
    rows = [replace(TRIAL, number=number, job=f"job-{number}") for number in range(3000)]
    with with_search.write() as writer:
        writer.searches.take("digits-1", trials=rows[:2000])
    pruned = [replace(row, state=TrialState.PRUNED, value=None, ended=5.0) for row in rows[1000:]]
    with with_search.write() as writer:
        writer.searches.take("digits-1", trials=pruned)
    assert with_search.searches.trials("digits-1") == rows[:1000] + pruned
    assert with_search.searches.trials("digits-1", after=998, limit=2) == [rows[999], pruned[0]]
    assert len(with_search.searches.trials("digits-1", states=[TrialState.HELD])) == 1000


def test_a_deleted_search_leaves_nothing(with_search):
    with with_search.write() as writer:
        writer.searches.add_search(replace(ROW, id="other", name="other"))
        for search in ("digits-1", "other"):
            trial = replace(TRIAL, search=search, job=search)
            report = TrialReport(trial=3, budget=9, metrics={}, seq=1)
            writer.searches.take(search, reports=[report], decisions=[DECISION], trials=[trial])
    with with_search.write() as writer:
        writer.searches.delete_search("digits-1")
    found = with_search.searches
    assert [row.id for row in found.searches()] == ["other"]
    assert (found.trials("digits-1"), found.reports("digits-1"), found.decisions("digits-1")) == ([], [], [])
    assert (len(found.trials("other")), len(found.reports("other")), len(found.decisions("other"))) == (1, 1, 1)
    with pytest.raises(NotFound), with_search.write() as writer:
        writer.searches.delete_search("digits-1")
