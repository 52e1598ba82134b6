"""Divide slots by Webster's divisor rule with floors and caps, in exact integers.

A claim of weight w to its (k+1)-th slot is worth w ÷ (k + ½), and the slots go to the highest claims of all. Why this
rule: it is a function of the present claims only, so it cannot oscillate. One slot more, or a job that leaves, shrinks
no other job. One that arrives lets no other grow and moves exactly the slots it gets (M. L. Balinski and H. P. Young,
"Fair Representation", 1982: the divisor methods). Floats never decide: a tie must be a tie on every machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edt_server.core.speedup import Speedup

Rank = tuple[int, int, int, int]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_SLOTS = 1 << 20  # beyond, fractions of claims do not fit into 64 bits
_SAFE = 1e-9  # far above the rounding of a float, far below the distance between two slots of a claim
_FRACTION = 42  # bits: fractions with denominators below 2²¹ differ by more than 2⁻⁴²


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
    if sum(claim.cap for claim in claims) <= slots:  # nothing to weigh, and the heap would take each slot in turn
        return tuple(claim.cap for claim in claims)
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


@dataclass(frozen=True, slots=True)
class Columns:
    """The claims of several divisions in sequence: arrays of equal length, units of 1, floors ≤ caps."""

    weight: Ints
    floor: Ints
    cap: Ints
    order: Ints
    owned: Ints


def divide_many(budgets: Ints, starts: Ints, claims: Columns) -> Ints:
    """Return what each claim gets of its division's budget, bit for bit what `divide` gives.

    The price of a slot is bracketed in floats, a little too high, so that a claim that gets a slot at that price gets
    it under the exact rule as well. The few claims within the bracket are then compared exactly, in integers.

    Args:
        budgets: slots of each division, at least the sum of its floors, below `MOST_SLOTS`.
        starts: index of the first claim of each division, ascending. No division is empty.
        claims: those of all divisions, in that order.
    """
    sizes = np.diff(np.append(starts, len(claims.weight)))
    target = np.minimum(budgets, np.add.reduceat(claims.cap, starts))
    shares = claims.floor.copy()
    open_ = np.add.reduceat(shares, starts) < target
    full = np.add.reduceat(claims.cap, starts) <= budgets
    shares = np.where(np.repeat(full, sizes), claims.cap, shares)
    open_ &= ~full
    if not open_.any():
        return shares
    weight = claims.weight.astype(np.float64)

    def at(price: Floats) -> Ints:
        bought = np.floor(weight / np.repeat(price, sizes) + 0.5).astype(np.int64) + claims.owned
        within: Ints = np.minimum(np.maximum(bought, claims.floor), claims.cap)
        return within

    high = np.maximum.reduceat(weight, starts) * 4  # at twice the heaviest weight no claim buys a slot
    low = np.minimum.reduceat(weight, starts) / (2.0 * MOST_SLOTS)
    steps = np.add.reduceat(weight, starts) / np.maximum(target, 1)
    for guess in (steps, steps * 0.97, steps * 1.03):
        _narrow(low, high, np.clip(guess, low, high), at, starts, target)
    # Until no claim has two slots within the bracket: then one exact comparison per claim decides. Bisecting to the end
    # would let the rounding of floats decide ties (decision 013).
    finest = 1.0 / (4.0 * (target + 2.0))
    while bool(np.any((high - low > low * finest) & open_)):
        _narrow(low, high, np.sqrt(low * high), at, starts, target)
    given = np.where(np.repeat(open_, sizes), at(high * (1 + _SAFE)), shares)
    left = np.where(open_, target - np.add.reduceat(given, starts), 0)
    worth = weight / (given - claims.owned + 0.5)
    near = (given < claims.cap) & (worth >= np.repeat(low * (1 - _SAFE), sizes)) & np.repeat(left > 0, sizes)
    return _hand_out(given, left, np.flatnonzero(near), np.repeat(np.arange(len(starts)), sizes), claims)


def _narrow(low: Floats, high: Floats, price: Floats, at: Callable[[Floats], Ints], starts: Ints, target: Ints) -> None:
    """Replace one end of every bracket by the price: `high` where no more is bought at it than there is."""
    fits = np.add.reduceat(at(price), starts) <= target
    np.copyto(high, price, where=fits)
    np.copyto(low, price, where=~fits)


def _hand_out(given: Ints, left: Ints, near: Ints, division: Ints, claims: Columns) -> Ints:
    """Give one slot each to the strongest of the claims `near` the price, as many as are left in each division."""
    weight, divisor = claims.weight[near], 2 * (given[near] - claims.owned[near]) + 1
    whole, rest = np.divmod(weight, divisor)
    fraction = (rest << _FRACTION) // divisor
    ranked = np.lexsort((claims.order[near], -weight, -fraction, -whole, division[near]))
    near = near[ranked]
    first = np.searchsorted(division[near], division[near])
    won = near[np.arange(len(near)) - first < left[division[near]]]
    given[won] += 1
    return given
