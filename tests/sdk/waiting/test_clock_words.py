"""Times of day in sentences are this machine's, and are called so, whatever its zone is."""

from __future__ import annotations

import time

import pytest

from edt_sdk.schemas.errors import ServerUnreachable
from edt_sdk.waiting.waiting import away_words

NOON = 1_795_176_000.0  # 2026-11-20 12:00 UTC


@pytest.fixture
def in_new_york(monkeypatch):
    with monkeypatch.context() as change:
        change.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_who_waits_is_told_the_zone_of_the_time():
    said = away_words(ServerUnreachable("The server does not answer."), NOON)
    assert said.startswith("Not renewed since 07:00:00 EST. The server does not answer.")
