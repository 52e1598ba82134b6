"""Compute many Webster divisions at once, with numpy.

All nodes at the same level of the tree take a few passes over all their claims. The price of a slot is bracketed in
floats, a little too high, so that a claim that gets a slot at that price gets it under the exact rule as well. The few
claims within the bracket are then compared exactly, in integers. The result is that of `divide`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_SLOTS = 1 << 20  # beyond, fractions of claims do not fit into 64 bits
_SAFE = 1e-9  # far above the rounding of a float, far below the distance between two slots of a claim
_FRACTION = 42  # bits: fractions with denominators below 2²¹ differ by more than 2⁻⁴²


@dataclass(frozen=True, slots=True)
class Columns:
    """The claims of several divisions in sequence: arrays of equal length, units of 1, floors ≤ caps."""

    weight: Ints
    floor: Ints
    cap: Ints
    order: Ints
    owned: Ints


def divide_many(budgets: Ints, starts: Ints, claims: Columns) -> Ints:
    """Return what each claim gets of its division's budget.

    Args:
        budgets: slots of each division, at least the sum of its floors, below `MOST_SLOTS`.
        starts: index of the first claim of each division, ascending. No division is empty.
        claims: the claims of all divisions, in that order.
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
