"""Who gives the state to whom, whatever positions the members are at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.training.member.membership import NO_STATE, handover

positions = st.lists(st.integers(NO_STATE, 4), min_size=1, max_size=9)


@given(positions)
def test_afterwards_everybody_is_where_the_foremost_is(before: list[int]) -> None:
    who = handover(before)
    best = max(before)
    assert who.none_has_state == (best == NO_STATE)
    if who.none_has_state:
        before = [0, *before[1:]]  # rank 0 got a state from elsewhere
        best = 0
    after = [before[who.takes[rank]] if rank in who.takes else before[rank] for rank in range(len(before))]
    assert after == [best] * len(before)


@given(positions)
def test_nobody_gives_and_takes_nobody_takes_in_vain_and_the_work_is_shared(before: list[int]) -> None:
    who = handover(before)
    assert not who.gives.keys() & who.takes.keys()
    assert {taker: giver for giver, takers in who.gives.items() for taker in takers} == who.takes
    if not who.none_has_state:
        assert all(before[taker] < max(before) for taker in who.takes)
        givers = [rank for rank, position in enumerate(before) if position == max(before)]
        loads = [len(who.gives.get(giver, ())) for giver in givers]
        assert max(loads) - min(loads) <= 1
        assert loads == sorted(loads, reverse=True)


def test_one_that_is_behind_takes_from_the_lowest_that_is_not() -> None:
    assert handover([3, 4, 4, NO_STATE, 3]).takes == {0: 1, 3: 2, 4: 1}
