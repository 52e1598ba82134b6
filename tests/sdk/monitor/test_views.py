"""Whether anybody sees a monitor: counted by front ends, of which one that is reloaded never says that it is gone."""

from __future__ import annotations

import pytest

from edt_sdk.monitor.counted import counted


@pytest.fixture
def told():
    return []


@pytest.fixture
def box(told):
    made = counted([], lambda change: told.append(change["new"]))
    yield made
    made.close()


def test_what_front_ends_open_and_close_is_told(box, told):
    for count in (1, 2, 1, 0):
        box.set_state({"_view_count": count})
    assert told == [1, 2, 1, 0]


def test_a_page_that_comes_anew_begins_to_count_and_nobody_is_told_that_the_old_one_is_gone(box, told):
    box.set_state({"_view_count": 1})
    assert box.get_state(drop_defaults=False)["_view_count"] == 0
    assert told == [1]
    box.set_state({"_view_count": 1})
    box.set_state({"_view_count": 0})
    assert told == [1, 1, 0]


def test_a_page_beside_another_one_is_not_missed_when_that_closes(box, told):
    box.set_state({"_view_count": 1})
    box.get_state()
    box.set_state({"_view_count": -1})  # the first page, before the second has opened a view
    assert told == [1, -1]


def test_asking_for_one_value_changes_nothing(box, told):
    box.set_state({"_view_count": 1})
    assert box.get_state("_view_count") == {"_view_count": 1}
    assert box.get_state(["_view_count"]) == {"_view_count": 1}
    assert told == [1]


def test_a_reloaded_page_that_shows_it_no_more_lets_the_monitor_sleep(monitor, training):
    monitor._box.set_state({"_view_count": 1})
    monitor._box.get_state()
    monitor.turn()
    assert monitor.due < float("inf"), "whoever has it on the screen may be about to open it"
    monitor._box.set_state({"_view_count": 1})
    monitor._box.set_state({"_view_count": 0})
    monitor.turn()
    assert monitor.due == float("inf")
