"""A claim is what a job asks of the rule. The rule knows nothing else about the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """The request of a single job. Counts are slots. `floor`, `cap` and `keep` are multiples of `unit`.

    Attributes:
        job: its id.
        group: the instance group it is in, a group without child groups.
        user: its owner, which counts where the group has user shares.
        weight: its priority, ≥ 1.
        order: its unique arrival number. It settles ties, lower first.
        turn: lower runs first while not all floors fit. At equal turns the lower order runs first.
        floor: fewest slots it can run with.
        cap: most slots it can use, 0 for a job that asks for nothing.
        unit: slots it takes at a time.
        keep: slots that may not be taken from it, because its group does not preempt.
        speeds: (slots, measured speed) of sizes it has run at, used where the group is throughput-aware.
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
