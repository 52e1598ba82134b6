"""The zone of this machine's clock, by a name that another machine understands."""

import re
import time

import pytest

from edt_sdk.display.picture import local_zone
from edt_sdk.formatting.number_words import clock, stamp


@pytest.fixture
def zone(monkeypatch):
    """Sets the process's zone, as the environment variable TZ does; conftest sets it back."""

    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    return set_zone


def test_it_is_the_one_that_is_set(zone):
    zone("Europe/Berlin")
    assert local_zone() == "Europe/Berlin"
    assert stamp(1_795_266_000) == "2026-11-21 14:00:00 CET"
    assert clock(1_795_266_000) == "14:00:00"


def test_without_a_name_that_others_know_it_is_an_offset(zone):
    zone("HERE-3")
    assert local_zone() == "+0300"


def test_without_a_setting_it_is_the_systems(monkeypatch):
    monkeypatch.delenv("TZ", raising=False)
    assert re.fullmatch(r"[+-]\d{4}|[A-Za-z_]+(/[\w+-]+)*", local_zone())
