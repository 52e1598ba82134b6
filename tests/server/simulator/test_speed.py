"""The speed of an application is a concave function through what was measured."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_server.simulator.speed import Speed


def test_between_measured_sizes_it_is_interpolated_and_beyond_them_it_stays():
    speed = Speed.of([(1, 10.0), (2, 18.0), (4, 30.0)])
    assert [speed.at(n) for n in (0, 0.5, 1, 2, 3, 4, 64)] == [0, 5, 10, 18, 24, 30, 30]
    assert speed.table(4) == {1: 10, 2: 18, 3: 24, 4: 30}


def test_a_table_that_begins_at_more_than_one_worker_goes_through_the_origin():
    assert Speed.of([(4, 20.0), (8, 30.0)]).at(1) == 5


def test_a_dent_is_filled_and_a_decline_is_kept():
    speed = Speed.of([(1, 10.0), (2, 12.0), (4, 30.0), (8, 25.0)])
    assert speed.at(2) == pytest.approx(10 + 20 / 3)
    assert speed.at(8) == 25
    assert speed.most == 4


def test_the_law_without_a_table():
    speed = Speed.by_law(64)
    assert speed.at(8) == pytest.approx(8 / 1.35)
    assert speed.at(64) == pytest.approx(64 / 4.15)


@pytest.mark.parametrize("points", [[], [(0, 1.0)], [(1, 0.0)], [(1, float("inf"))]])
def test_what_is_no_speed_is_refused(points):
    with pytest.raises(ValueError, match="positive"):
        Speed.of(points)


@given(st.dictionaries(st.integers(1, 64), st.floats(0.1, 1e4), min_size=1))
def test_gains_never_grow(points):
    speed = Speed.of(points.items())
    gains = [speed.at(n + 1) - speed.at(n) for n in range(max(points))]
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(gains))
    assert all(speed.at(n) >= value - 1e-6 for n, value in points.items())
