"""Moments as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from edt_sdk import InvalidRequest
from edt_sdk.formatting.moments import moment

NOW = datetime(2026, 5, 2, 14, 0, 0).timestamp()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (12.5, 12.5),
        ("12.5", 12.5),
        ("90s", NOW - 90),
        ("1.5h", NOW - 5400),
        (" 2 d ", NOW - 2 * 86400),
        ("1w", NOW - 7 * 86400),
        ("13:30", NOW - 1800),
        ("13:30:20", NOW - 1780),
        ("14:00", NOW),
        ("14:01", NOW + 60 - 86400),
        ("2026-05-02", NOW - 14 * 3600),
        ("2026-05-02T13:59", NOW - 60),
        ("2026-05-02T10:00:00+00:00", datetime(2026, 5, 2, 10, tzinfo=UTC).timestamp()),
        (datetime(2026, 5, 2, 10, tzinfo=UTC), datetime(2026, 5, 2, 10, tzinfo=UTC).timestamp()),
    ],
)
def test_what_is_a_time(given, expected):
    assert moment(given, NOW) == expected


@pytest.mark.parametrize(
    "given", ["soon", "", "25:00", "2026-13-01", "nan", float("inf"), "-", "2 fortnights", "1e999"]
)
def test_what_is_none_is_refused_with_examples(given):
    with pytest.raises(InvalidRequest, match="no time") as refused:
        moment(given, NOW)
    assert "2h" in refused.value.hint
