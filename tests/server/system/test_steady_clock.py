"""A clock that is set by a year, in both directions, and the time of day that decisions see."""

from __future__ import annotations

import time

import pytest

from edt_server.system import steady_clock
from edt_server.system.steady_clock import AHEAD, SteadyClock
from tests.clocks import YEAR, Clocks


def test_it_is_the_wall_clock(clocks: Clocks) -> None:
    clock = SteadyClock()
    assert clock.now() == time.time()
    clocks.pass_time(100.0)
    assert clock.now() == time.time()


@pytest.mark.parametrize("leap", [YEAR, -YEAR])
def test_a_leap_is_not_followed_until_it_is_taken_back(clocks: Clocks, leap: float, caplog) -> None:
    clock, begun = SteadyClock(), time.time()
    clocks.set_by(leap)
    assert clock.now() == begun
    clocks.pass_time(50.0)
    assert clock.now() == begun + 50.0
    assert caplog.text.count("leapt") == 1
    assert "365.0 days" in caplog.text
    clocks.set_by(-leap)
    clocks.pass_time(1.0)
    assert clock.now() == time.time()
    clocks.set_by(leap)
    assert clock.now() == time.time() - leap
    assert caplog.text.count("leapt") == 2


def test_a_correction_is_followed_and_time_never_goes_back(clocks: Clocks) -> None:
    clock, begun = SteadyClock(), time.time()
    clocks.set_by(-30.0)
    assert clock.now() == begun
    clocks.pass_time(40.0)
    assert clock.now() == time.time() == begun + 10.0
    clocks.set_by(20.0)
    assert clock.now() == time.time()


def test_the_sleep_of_a_virtual_machine_is_followed(clocks: Clocks) -> None:
    clock = SteadyClock()
    clocks.set_by(AHEAD - 1.0)
    assert clock.now() == time.time()


def test_a_machine_that_hears_the_time_after_its_start(clocks: Clocks, monkeypatch) -> None:
    clocks.running = 30.0
    clock = SteadyClock()
    clocks.set_by(50 * YEAR)
    assert clock.now() == time.time()


def test_it_goes_on_from_what_is_known_to_have_passed(clocks: Clocks, caplog) -> None:
    newest = time.time() + YEAR
    clock = SteadyClock(newest)
    assert clock.now() == newest
    clocks.pass_time(5.0)
    assert clock.now() == newest + 5.0
    assert caplog.text.count("ahead of this machine's clock") == 1
    assert "leapt" not in caplog.text


def test_the_machine_s_own_time_goes_on() -> None:
    first = steady_clock.running_for()
    assert 0 < first <= steady_clock.running_for()
