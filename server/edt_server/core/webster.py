"""Webster's divisor rule with floors and caps, in exact integers.

A claim of weight w to its (k+1)-th slot is worth w ÷ (k + ½); the slots go to the highest claims of all. Why this rule:
it is a function of the present claims only, so it cannot oscillate; one slot more shrinks nobody, a job that leaves
shrinks nobody, one that arrives lets nobody grow and moves exactly the slots it gets (M. L. Balinski and H. P. Young,
"Fair Representation", 1982: the divisor methods). Floats never decide: a tie must be a tie on every machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

Rank = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Claim:
    """What one job may have.

    Attributes:
        weight: ≥ 1.
        floor: slots that come before every weighted claim of others.
        cap: most slots it can use, ≥ 0; a cap below the floor wins.
        order: settles ties, lower first; unique among the claims divided together.
    """

    weight: int
    floor: int
    cap: int
    order: int


def precision(slots: int) -> int:
    """Bits to scale claims by so that integer division keeps their order, for up to `slots` slots.

    Different values of w ÷ (2k + 1) with k < slots differ by more than 1 ÷ (2·slots)²; scaled by more than that square,
    different ones stay at least 1 apart and equal ones stay equal.
    """
    return 2 * (2 * slots + 1).bit_length()


def rank(claim: Claim, held: int, bits: int) -> Rank:
    """Sort key of the claim to one more slot on top of `held`, strongest first.

    Floors come first, one slot each in turn; then the worth of the claim; of equal worths the heavier weight (it is the
    one that holds more), then the lower order.
    """
    if held < claim.floor:
        return 0, held, 0, claim.order
    return 1, -((claim.weight << bits) // (2 * held + 1)), -held, claim.order


def divide(slots: int, claims: Sequence[Claim]) -> tuple[int, ...]:
    """How many of `slots` each claim gets, in the order of `claims`; the sum is min(slots, sum of caps).

    O(n + slots·log n). With fewer slots than floors the floors are filled one slot each in turn.
    """
    shares = [0] * len(claims)
    bits = precision(slots)
    heap = [(rank(claim, 0, bits), index) for index, claim in enumerate(claims) if claim.cap > 0]
    heapq.heapify(heap)
    for _ in range(slots):
        if not heap:
            break
        _, index = heap[0]
        shares[index] += 1
        if shares[index] < claims[index].cap:
            heapq.heapreplace(heap, (rank(claims[index], shares[index], bits), index))
        else:
            heapq.heappop(heap)
    return tuple(shares)
