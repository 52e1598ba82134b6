"""The divisor rule against its definition, its lemmas, and the cases that tell rules apart."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_server.core.divisor_rule import WeightedClaim as Claim
from edt_server.core.divisor_rule import divide


def shares(slots: int, *weights: int) -> tuple[int, ...]:
    return divide(slots, [Claim(weight=weight, floor=1, cap=slots, order=n) for n, weight in enumerate(weights)])


def reference(slots: int, claims: list[Claim]) -> tuple[int, ...]:
    """The definition: list all claims, sort, take the first. Ties go to the heavier, then the earlier."""
    entries = [
        (0, held, 0, claim.order, index)
        if held < claim.floor
        else (1, -Fraction(2 * claim.weight, 2 * held + 1), -claim.weight, claim.order, index)
        for index, claim in enumerate(claims)
        for held in range(min(claim.cap, slots))
    ]
    won = [entry[-1] for entry in sorted(entries)[:slots]]
    return tuple(won.count(index) for index in range(len(claims)))


@pytest.mark.parametrize(
    ("slots", "weights", "expected"),
    [
        (8, (5000, 5000), (4, 4)),
        (8, (5000, 10000), (3, 5)),  # IBM's example, in either order of arrival
        (8, (10000, 5000), (5, 3)),
        (8, (5000, 5000, 5000, 10000), (2, 2, 1, 3)),
        (6, (3000, 5000, 5000), (1, 3, 2)),  # largest remainder: 2, 2, 2
        (7, (3000, 5000, 5000), (1, 3, 3)),
        (8, (1000, 2000, 3000, 10000), (1, 1, 1, 5)),
        (8, (1000, 3000, 10000), (1, 2, 5)),  # its second job left: nobody shrank
        (4, (5000, 5000), (2, 2)),
        (4, (5000, 10000), (1, 3)),
        (3, (5000, 5000), (2, 1)),  # a tie goes to the earlier
        (0, (5000,), (0,)),
        (2, (1, 10**9, 10**9), (1, 1, 0)),  # fewer slots than floors: in order of arrival
    ],
)
def test_known_divisions(slots, weights, expected):
    assert shares(slots, *weights) == expected


def test_a_light_job_keeps_its_floor():
    assert shares(8, 1, 10**9) == (1, 7)


def test_slots_nobody_can_use_stay_free():
    claims = [Claim(weight=5000, floor=1, cap=2, order=0), Claim(weight=5000, floor=1, cap=3, order=1)]
    assert divide(8, claims) == (2, 3)


def test_no_claims():
    assert divide(4, []) == ()


def test_claims_that_differ_by_less_than_a_float_can_tell_are_told_apart():
    weight = 10**17
    tied = [
        Claim(weight, 0, 9, 0),
        Claim(3 * weight, 0, 9, 1),
    ]  # w ÷ ½ = 3w ÷ 1.5: a tie, for the heavier
    assert divide(2, tied) == (0, 2)
    below = [Claim(weight, 0, 9, 0), Claim(3 * weight - 1, 0, 9, 1)]
    assert float(3 * weight - 1) == float(3 * weight)
    assert divide(2, below) == (1, 1)


claim_lists = st.lists(
    st.builds(
        lambda weight, floor, cap: (weight, floor, cap),
        st.one_of(st.integers(1, 20), st.sampled_from([1000, 2000, 5000, 10000, 10**9])),
        st.integers(0, 2),
        st.integers(0, 12),
    ),
    max_size=8,
).map(lambda rows: [Claim(*row, order=n) for n, row in enumerate(rows)])
slot_counts = st.integers(0, 24)


@given(slot_counts, claim_lists)
def test_it_is_its_definition(slots, claims):
    assert divide(slots, claims) == reference(slots, claims)


@given(slot_counts, claim_lists)
def test_it_hands_out_all_that_can_be_used(slots, claims):
    got = divide(slots, claims)
    assert sum(got) == min(slots, sum(claim.cap for claim in claims))
    assert all(share <= claim.cap for share, claim in zip(got, claims, strict=True))


@given(slot_counts, claim_lists)
def test_one_slot_more_shrinks_nobody(slots, claims):
    less, more = divide(slots, claims), divide(slots + 1, claims)
    assert all(a <= b for a, b in zip(less, more, strict=True))


@given(slot_counts, claim_lists.filter(bool), st.data())
def test_a_claim_that_leaves_shrinks_nobody_and_its_slots_are_all_that_moves(slots, claims, data):
    index = data.draw(st.integers(0, len(claims) - 1))
    before = divide(slots, claims)
    after = divide(slots, claims[:index] + claims[index + 1 :])
    survivors = before[:index] + before[index + 1 :]
    grown = [b - a for a, b in zip(survivors, after, strict=True)]
    assert min(grown, default=0) >= 0
    assert sum(grown) <= before[index]


@given(slot_counts, claim_lists.filter(bool), st.data())
def test_a_heavier_weight_lets_only_that_claim_grow(slots, claims, data):
    index = data.draw(st.integers(0, len(claims) - 1))
    heavier = list(claims)
    heavier[index] = replace(claims[index], weight=claims[index].weight * data.draw(st.integers(1, 9)))
    before, after = divide(slots, claims), divide(slots, heavier)
    assert after[index] >= before[index]
    assert all(b <= a for n, (a, b) in enumerate(zip(before, after, strict=True)) if n != index)


@given(slot_counts, claim_lists, st.randoms(use_true_random=False))
def test_the_order_of_the_list_does_not_matter(slots, claims, random):
    shuffled = list(claims)
    random.shuffle(shuffled)
    by_order = dict(zip((c.order for c in shuffled), divide(slots, shuffled), strict=True))
    assert tuple(by_order[claim.order] for claim in claims) == divide(slots, claims)
