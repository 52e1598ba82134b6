"""What one job asks of the rule, and all that the rule knows of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One job's request. Counts are slots; floor, cap and keep are multiples of `unit`.

    Attributes:
        job: its id.
        group: the instance group it is in, one that holds no others.
        user: its owner; counts where the group has user shares.
        weight: its priority, ≥ 1.
        order: its arrival number, unique; settles ties, lower first.
        turn: lower runs first while not all floors fit; at equal turns the lower order.
        floor: fewest slots it can run with.
        cap: most slots it can use; 0 for a job that asks for nothing.
        unit: slots it takes at a time.
        keep: slots that may not be taken from it, because its group does not preempt.
        speeds: (slots, measured speed) of sizes it has run at; used where the group is throughput-aware.
    """

    job: str
    group: str
    user: str
    weight: int
    order: int
    turn: float
    floor: int
    cap: int
    unit: int = 1
    keep: int = 0
    speeds: tuple[tuple[int, float], ...] = ()
