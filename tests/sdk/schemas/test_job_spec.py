"""A job's own settings are refused before anything is sent, with the numbers."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.job import JobSpec, parse_patch


def spec(**changes):
    return JobSpec(**{"name": "n", "main": "train.py", "max_workers": 8, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"min_workers": 8},
        {"slots_per_unit": 4},
        {"slots_per_unit": 4, "min_workers": 4},
        {"slots_per_unit": 8, "min_workers": 8, "pending_timeout": 0.5},
    ],
)
def test_units_and_least_sizes_that_can_be(changes):
    assert spec(**changes).check() == spec(**changes)


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"min_workers": 9}, "min_workers", "min_workers is 9 and max_workers 8"),
        ({"min_workers": 0}, "min_workers", "must be at least 1, not 0"),
        ({"slots_per_unit": 0}, "slots_per_unit", "must be at least 1, not 0"),
        (
            {"slots_per_unit": 3},
            "max_workers",
            "max_workers is 8, which is no multiple of slots_per_unit, 3. Say max_wor",
        ),
        ({"slots_per_unit": 3}, "max_workers", "max_workers=6"),
        ({"slots_per_unit": 16}, "max_workers", "max_workers=16"),
        ({"slots_per_unit": 4, "min_workers": 2}, "min_workers", "no multiple of slots_per_unit, 4. Say min_workers=4"),
        ({"slots_per_unit": 4, "min_workers": 6}, "min_workers", "Say min_workers=4"),
        ({"pending_timeout": 0.0}, "pending_timeout", "above 0, not 0"),
        ({"pending_timeout": -1.5}, "pending_timeout", "not -1.5"),
        ({"pending_timeout": float("inf")}, "pending_timeout", "not inf"),
        ({"max_workers": 0}, "max_workers", "at least 1, not 0"),
        ({"priority": 0}, "priority", "not 0"),
        ({"log": "loud"}, "log", "log is 'quiet' or 'batches', not 'loud'."),
    ],
)
def test_those_that_cannot(changes, field, says):
    with pytest.raises(Unprocessable) as refused:
        spec(**changes).check()
    assert refused.value.ids["field"] == field
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"priority": "high"}', "priority"),
        (b'{"priority": 1.5}', "priority"),
        (b'{"priority": 0}', "priority"),
        (b'{"max_workers": true}', "max_workers"),
        (b'{"owner": "bob"}', "owner"),
    ],
)
def test_a_wrong_change_can_never_be_made(body, field):
    with pytest.raises(Unprocessable) as refused:
        parse_patch(body)
    assert refused.value.ids["field"] == field


def test_a_change_that_is_none():
    for body in (b"{}", b"{", b""):
        with pytest.raises(InvalidRequest):
            parse_patch(body)
