"""Divisions in arrays are the divisions one by one, ties and all."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_server.core.division import Division
from edt_server.core.divisor_rule import Columns, WeightedClaim, divide, divide_many

rows = st.tuples(
    st.one_of(st.integers(1, 20), st.sampled_from((1000, 2000, 3000, 5000, 10000, 10**9))),
    st.integers(0, 3),
    st.sampled_from((0, 1, 2, 5, 40, 10**9)),
    st.integers(0, 4),
)


@st.composite
def divisions(draw):
    found = []
    for _ in range(draw(st.integers(1, 4))):
        claims = []
        for order, (weight, more, cap, owned) in enumerate(draw(st.lists(rows, min_size=1, max_size=8))):
            owned = min(owned, cap)
            claims.append(WeightedClaim(weight, min(owned + more, cap), cap, order, owned=owned))
        least = sum(claim.floor for claim in claims)
        found.append((least + draw(st.one_of(st.integers(0, 40), st.integers(0, 3000))), claims))
    return found


@settings(max_examples=300, deadline=None)
@given(divisions())
def test_many_divisions_are_each_of_them(found):
    expected = [share for slots, claims in found for share in divide(slots, claims)]
    flat = [claim for _, claims in found for claim in claims]
    names = ("weight", "floor", "cap", "order", "owned")
    columns = Columns(*(np.array([getattr(claim, name) for claim in flat], dtype=np.int64) for name in names))
    starts = np.cumsum([0] + [len(claims) for _, claims in found[:-1]])
    assert divide_many(np.array([slots for slots, _ in found]), starts, columns).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(divisions(), st.integers(0, 30))
def test_a_division_kept_up_to_date_is_that_from_nothing(found, more):
    (slots, claims), *_ = found
    division = Division([(str(n), claim, 0) for n, claim in enumerate(claims)])
    for there in (slots + more, slots):
        division.settle(there)
        assert tuple(division.held(str(n)) for n in range(len(claims))) == divide(there, claims)


def test_a_tie_between_heavy_and_light_goes_to_the_heavy_one_at_any_size():
    claims = Columns(*(np.array(row, dtype=np.int64) for row in ((3, 1), (0, 0), (9, 9), (1, 0), (0, 0))))
    assert divide_many(np.array([2]), np.array([0]), claims).tolist() == [2, 0]
