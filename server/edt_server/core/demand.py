"""Compute how many slots a resource group would need to give its jobs all that the plan ever lets them have.

Pure. The rule itself answers: it is asked what it would give if slots were plenty, and then what is the least number of
slots for which it gives as much. So limits on borrowing, slots that are not lent, quotas, units and measured speed
count here exactly as they do when slots are divided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edt_server.core.claim import Claim
from edt_server.core.divisor_rule import MOST_SLOTS
from edt_server.core.pool import Pool
from edt_server.core.rule import Rule


@dataclass(frozen=True, slots=True)
class Demand:
    """The slots that a resource group would use at once.

    Attributes:
        more: slots that its jobs would take beyond all that exist, 0 when every job has what it may have. Slots that
            another job is leaving, or that a group gets back from a borrower, are not asked for again.
        total: the least number of slots for which `more` is 0. With fewer some job would have less than now, or less
            than it could have.
    """

    more: int
    total: int


def demand(pool: Pool) -> Demand:
    """Return the demand of a pool as of the last `settle` of its rule. O(n log n) for n claims."""
    claims = [claim for claim in pool.rule.claims() if claim.cap]
    exist = len(pool.slots)
    best = _granted(pool, claims, sum(claim.cap for claim in claims) + sum(group.own for group in pool.groups))
    missing = best - sum(pool.rule.target(claim.job) for claim in claims)
    total = best
    # Slots that a group owns and does not lend are out of reach of the others, and how many these are depends on how
    # many slots there are. So the number of slots rises until as much is given as could be given at all.
    while best < MOST_SLOTS and (short := best - _granted(pool, claims, total)) > 0:
        total += short
    return Demand(more=max(0, total - exist), total=total) if missing > 0 else Demand(more=0, total=min(total, exist))


def _granted(pool: Pool, claims: Iterable[Claim], slots: int) -> int:
    """Return how many of `slots` the rule gives to these claims."""
    rule = Rule(pool.groups, slots)
    for claim in claims:
        rule.put(claim)
    for queue in pool.turns.queues():
        rule.set_turn(queue.group, queue.user, queue.turn)
    return sum(rule.settle().values())
