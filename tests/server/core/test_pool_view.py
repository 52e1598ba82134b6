"""What reasons share: forecasts as if every turn were listed, and pictures that do not outlive their event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_server.core.reason import _nth

seconds = st.integers(0, 50).map(float)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 30), st.lists(seconds, max_size=4), st.lists(seconds, max_size=6))
def test_the_nth_slot_that_becomes_free_is_found_without_listing_all(number, turns, ends):
    turns, ends, quantum = sorted(turns), sorted(ends), 50.0
    listed = sorted([*(end + quantum * lap for end in turns for lap in range(number + 1)), *ends])
    expected = listed[number] if number < len(listed) else None
    assert _nth(number, turns, quantum, ends) == expected


def test_a_picture_is_of_one_moment(play):
    p = play(1)
    for job in "abc":
        p.run(job)
    assert [p.core.reason(job).numbers["ahead"] for job in "bc"] == [0, 1]
    assert p.core.reason("c").numbers["running"] == ["a"]
    p.gone("b")
    assert p.core.reason("c").numbers["ahead"] == 0
    p.gone("a")
    assert p.core.reason("c").numbers.get("ahead") is None


@pytest.mark.parametrize("jobs", [300])
def test_the_reasons_of_many_jobs_name_no_more_than_a_few(play, jobs):
    p = play(150)
    for number in range(jobs):
        p.arrive(f"j{number}")
    found = [p.core.reason(f"j{number}") for number in range(jobs)]
    assert [each is None for each in found] == [number < 150 for number in range(jobs)]
    assert len(found[-1].numbers["running"]) == 100
    assert "and 146 more" in found[-1].text
    assert found[-1].numbers["ahead"] == 149
