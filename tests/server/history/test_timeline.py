"""The allocation timeline, from the events a real core caused, and the demo's story told from it."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobPatch
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.events import (
    JobArrived,
    JobBudget,
    JobChanged,
    JobDemand,
    JobGone,
    JobHeld,
    JobResumed,
    JobSuspended,
    SlotsChanged,
)
from edt_server.history.timeline import TimelineIndex
from tests.server.timeline_histories import Recorder, call, wander


def allocation(events, names=str, job=None):
    index = TimelineIndex(names)
    index.take(events)
    return index.rows(index.window(job=job))


def settled(rows):
    """The slots by job of the settled rows, with equal neighbours merged."""
    return [slots for slots, _ in itertools.groupby(row["slots"] for row in rows if row["settled"])]


@pytest.fixture
def demo() -> Recorder:
    r = Recorder()
    r.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(4))))
    r.apply(JobArrived("a", 5000, 4, "default", owner="ana"))
    r.apply(JobDemand("a", 8))
    r.apply(JobArrived("b", 5000, 4, "default", owner="ana"))
    r.leave()
    r.apply(JobDemand("b", 8))
    r.leave()
    r.apply(JobChanged("b", JobPatch(priority=10000)), before={"priority": 5000})
    r.leave()
    r.apply(JobDemand("a", 0))
    r.leave()
    r.apply(JobGone("a"))
    return r


def test_the_demos_allocation_at_the_settled_points(demo):
    assert settled(allocation(demo.events)) == [
        {},
        {"a": 1},
        {"a": 4},
        {"a": 3, "b": 1},  # b starts on one slot
        {"a": 2, "b": 2},
        {"a": 1, "b": 3},
        {"b": 4},
    ]


def test_every_row_of_the_demo(demo):
    rows = allocation(demo.events, call)
    told = [(row["slots"], row["leaving"], row["free"], row["settled"], row["text"]) for row in rows]
    assert told == [
        ({}, {}, 4, True, "this server offers 4 slots now"),
        ({"a": 1}, {}, 3, True, "digits-a arrived: digits-a gets 1"),
        ({"a": 4}, {}, 0, True, "digits-a began a training that can use 8 slots: digits-a gets 3"),
        ({"a": 4}, {"a": 1}, 0, False, "digits-b arrived: digits-a is asked for 1"),
        ({"a": 3, "b": 1}, {}, 0, True, "digits-a gave slot 3 back: digits-b gets 1"),
        (
            {"a": 3, "b": 1},
            {"a": 1},
            0,
            False,
            "digits-b began a training that can use 8 slots: digits-a is asked for 1",
        ),
        ({"a": 2, "b": 2}, {}, 0, True, "digits-a gave slot 2 back: digits-b gets 1"),
        (
            {"a": 2, "b": 2},
            {"a": 1},
            0,
            False,
            "digits-b's priority is now 10000 (was 5000): digits-a is asked for 1",
        ),
        ({"a": 1, "b": 3}, {}, 0, True, "digits-a gave slot 1 back: digits-b gets 1"),
        ({"a": 1, "b": 3}, {"a": 1}, 0, False, "digits-a finished a training: digits-a gives back 1"),
        ({"b": 4}, {}, 0, True, "digits-a gave slot 0 back: digits-b gets 1"),
    ]
    assert json.loads(json.dumps(rows)) == rows
    assert rows[3]["cause"] == "job_arrived"
    assert demo.events[rows[3]["seq"] - 1].kind == "job_arrived"
    assert rows[3]["time"] == 1000.0 + rows[3]["seq"]


def test_the_demo_told_by_the_job(demo):
    assert [event.text for event in demo.events if event.job == "b"] == [
        "submitted by ana: max 4 workers, priority 5000",
        "slot 3 granted (1 held): digits-a gave slot 3 back",
        "its training can use up to 8 slots",
        "slot 2 granted (2 held): digits-a gave slot 2 back",
        "its priority is now 10000 (was 5000)",
        "slot 1 granted (3 held): digits-a gave slot 1 back",
        "slot 0 granted (4 held): digits-a gave slot 0 back",
    ]
    of_a = [event.text for event in demo.events if event.job == "a"]
    assert "asked to give back slot 3: digits-b arrived, entitled to 3 now" in of_a
    assert "asked to give back slot 1: digits-b's priority is now 10000 (was 5000), entitled to 1 now" in of_a


def test_a_job_that_is_gone_frees_what_it_had_and_was_leaving():
    r = Recorder()
    r.apply(SlotsChanged((Slot(id=0, host="h"), Slot(id=1, host="h"))))
    r.apply(JobArrived("a", 5000, 2, "default"))
    r.apply(JobDemand("a", 2))
    r.apply(JobArrived("b", 5000, 1, "default"))
    r.apply(JobGone("a"))
    assert settled(allocation(r.events))[-1] == {"b": 1}
    assert r.events[-1].text == "slot 0 granted (1 held): it came free as digits-a ended"


def test_slots_that_are_taken_away_while_a_job_is_in_them():
    r = Recorder()
    r.apply(SlotsChanged((Slot(id=0, host="h"), Slot(id=1, host="h"))))
    r.apply(JobArrived("a", 5000, 2, "default"))
    r.apply(JobDemand("a", 2))
    r.apply(SlotsChanged((Slot(id=0, host="h"),)))
    row = allocation(r.events)[-1]
    assert (row["slots"], row["leaving"], row["capacity"], row["free"]) == ({"a": 2}, {"a": 1}, 1, 0)
    r.leave()
    row = allocation(r.events)[-1]
    assert (row["slots"], row["free"], row["settled"]) == ({"a": 1}, 0, True)


def test_what_changes_no_allocation_makes_no_row(demo):
    rows = allocation(demo.events)
    demo.apply(SlotsChanged(demo.core.slots))
    demo.apply(JobChanged("b", JobPatch(priority=1)))
    demo.apply(JobDemand("b", 4))
    noise = Event(seq=0, time=0.0, job="a", kind="generation", data={}, cause=None, text="")
    assert allocation([noise, *demo.events, noise]) == rows


@pytest.fixture
def pair() -> Recorder:
    """Two jobs with two slots each."""
    r = Recorder()
    r.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(4))))
    for job in "ab":
        r.apply(JobArrived(job, 5000, 4, "default"))
        r.apply(JobDemand(job, 8))
        r.leave()
    return r


def test_a_suspended_job_gives_back_and_when_it_is_resumed_others_do(pair):
    pair.apply(JobSuspended("a"))
    row = allocation(pair.events, call)[-1]
    assert (row["cause"], row["text"]) == ("job_suspended", "digits-a was suspended: digits-a gives back 2")
    pair.leave()
    pair.apply(JobResumed("a"))
    assert allocation(pair.events, call)[-1]["text"] == "digits-a was resumed: digits-b is asked for 2"


def test_a_job_that_holds_gives_back_and_with_more_budget_others_do(pair):
    pair.apply(JobBudget("a", 1))
    pair.apply(JobHeld("a", 1, 3))
    row = allocation(pair.events, call)[-1]
    assert row["cause"] == "job_held"
    assert row["text"] == "digits-a has reached its budget of epochs: digits-a gives back 2"
    pair.leave()
    pair.apply(JobBudget("a", 3))
    assert allocation(pair.events, call)[-1]["text"] == "digits-a may train on: digits-b is asked for 2"


def test_the_life_of_a_job_that_came_back_has_a_gap(pair):
    pair.apply(JobGone("b"))
    end = allocation(pair.events)[-1]
    pair.apply(JobChanged("a", JobPatch(max_workers=1)))
    pair.leave()
    assert allocation(pair.events, job="b")[-1] == end, "nothing behind its end"
    pair.apply(JobArrived("b", 5000, 1, "default"), again=True)
    rows = allocation(pair.events, call)
    own = allocation(pair.events, call, job="b")
    assert own == rows[-len(own) :], "the gap is told too"
    assert own[-1]["text"].startswith("digits-b was resumed")


def test_no_events_no_rows():
    assert allocation([]) == []


def test_a_list_without_its_beginning_is_noticed(demo):
    grant = next(event for event in demo.events if event.kind == "slot_granted")
    with pytest.raises(ValueError, match="without the input"):
        allocation([grant])


def test_the_timeline_agrees_with_the_core_over_random_histories():
    """After each step the last row is what the core says, `settled` included."""
    rng = random.Random(7)
    r = Recorder()
    r.apply(SlotsChanged(tuple(Slot(id=n, host="h") for n in range(5))))
    for number in range(400):
        wander(r, rng, number)
        row = allocation(r.events)[-1]
        occupied = {job: len(r.core.holding(job)) + len(r.core.leaving(job)) for job in r.core.jobs}
        assert row["slots"] == {job: count for job, count in occupied.items() if count}
        assert row["free"] == len(r.core.free())
        assert row["capacity"] == len(r.core.slots)
        assert row["settled"] == r.core.settled()
