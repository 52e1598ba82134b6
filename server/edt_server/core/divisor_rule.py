"""Divide slots by Webster's divisor rule with floors and caps, in exact integers.

A claim of weight w to its (k+1)-th slot is worth w ÷ (k + ½), and the slots go to the highest claims of all. Why this
rule: it is a function of the present claims only, so it cannot oscillate. One slot more, or a job that leaves, shrinks
no other job. One that arrives lets no other grow and moves exactly the slots it gets (M. L. Balinski and H. P. Young,
"Fair Representation", 1982: the divisor methods). Floats never decide: a tie must be a tie on every machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from edt_server.core.speedup import Speedup

Rank = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class WeightedClaim:
    """The claim of a job, user or group.

    Attributes:
        weight: ≥ 1.
        floor: slots that come before every weighted claim of others.
        cap: most slots it can use, ≥ 0. A cap below the floor wins.
        order: settles ties, lower first. Unique among the claims divided together.
        owned: slots it owns, ≤ floor. They do not count when its claim to a further slot is weighed.
        unit: slots it takes at a time. Floor and cap are multiples.
        speedup: gains of its measured speed, instead of 1 ÷ (k + ½).
    """

    weight: int
    floor: int
    cap: int
    order: int
    owned: int = 0
    unit: int = 1
    speedup: Speedup | None = None


def precision(slots: int) -> int:
    """Return the bits to scale claims by so that integer division keeps their order, for up to `slots` slots.

    Different values of w ÷ (2k + 1) with k < slots differ by more than 1 ÷ (2·slots)². Scaled by more than that square,
    different values stay at least 1 apart and equal values stay equal.
    """
    return 2 * (2 * slots + 1).bit_length()


def worth(claim: WeightedClaim, held: int, bits: int) -> int:
    """Return what one more slot on top of `held`, or one more unit, is worth to the claim, scaled, without floors.

    A unit of u slots is weighed at its middle, w ÷ (k + u/2). For one slot that is k + ½.
    """
    if claim.speedup is not None:
        return claim.weight * claim.speedup.gain(held, claim.unit)
    return (claim.weight << bits) // (2 * (held - claim.owned) + claim.unit)


def rank(claim: WeightedClaim, held: int, bits: int) -> Rank:
    """Return the sort key of the claim to one more slot on top of `held`, strongest first.

    Floors come first, one slot each in turn, then the worth of the claim. At equal worths the heavier weight wins, then
    the lower order (decision 006).
    """
    if held < claim.floor:
        return 0, held, 0, claim.order
    return 1, -worth(claim, held, bits), -claim.weight, claim.order


def divide(slots: int, claims: Sequence[WeightedClaim]) -> tuple[int, ...]:
    """Return how many of `slots` each claim gets, in the order of `claims`.

    With units of 1 the sum is min(slots, Σ caps). A unit that does not fit into what is left is skipped, and what is
    left goes to the next claim. O(n + slots·log n). With fewer slots than floors, floors get one slot each in turn.
    """
    shares = [0] * len(claims)
    left = slots
    floors = sum(min(claim.floor, claim.cap) for claim in claims)
    if floors <= slots:  # they all fit: no need to give them one by one
        shares = [min(claim.floor, claim.cap) for claim in claims]
        left -= floors
    bits = precision(slots + max((claim.unit for claim in claims), default=1))
    heap = [
        (rank(claim, got, bits), n)
        for n, (claim, got) in enumerate(zip(claims, shares, strict=True))
        if got < claim.cap
    ]
    heapq.heapify(heap)
    while left and heap:
        _, index = heap[0]
        claim = claims[index]
        # What does not fit now never will, because `left` only shrinks.
        if claim.unit > left:
            heapq.heappop(heap)
            continue
        shares[index] += claim.unit
        left -= claim.unit
        if shares[index] < claim.cap:
            heapq.heapreplace(heap, (rank(claim, shares[index], bits), index))
        else:
            heapq.heappop(heap)
    return tuple(shares)
