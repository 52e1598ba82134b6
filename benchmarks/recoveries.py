"""What the death of a worker cost, from the commit log and the time of the kill. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.commit_log import Commit


@dataclass(frozen=True, slots=True)
class Recovery:
    """One kill, survived.

    Attributes:
        time: of the kill, seconds since the epoch.
        world: workers before it.
        next_update: seconds from the kill to the first commit of those who went on. An update that was through its
            exchange when the kill came, and is committed by the old members, is not the next one.
        full: seconds until there were as many workers as before.
        repeated: updates that were committed a second time.
    """

    time: float
    world: int
    next_update: float
    full: float
    repeated: int


def generation_at(commits: Sequence[Commit], time: float) -> int:
    """The members' generation at that time; ValueError before the first commit."""
    numbers = [commit.generation for commit in commits if commit.time <= time]
    if not numbers:
        raise ValueError("nothing was committed before the kill")
    return max(numbers)


def recovered(commits: Sequence[Commit], world: int, time: float, updates: int) -> bool:
    """Whether, after a kill at `time`, `world` workers have committed that many updates in later generations."""
    before = generation_at(commits, time)
    return sum(commit.generation > before and commit.world == world for commit in commits) >= updates


def recovery(commits: Sequence[Commit], world: int, time: float) -> Recovery:
    """What the kill at `time` of one of `world` workers cost; ValueError when they have not recovered."""
    before = generation_at(commits, time)
    known = {commit.update for commit in commits if commit.generation <= before}
    after = [commit for commit in commits if commit.generation > before]
    full = next((commit for commit in after if commit.world == world), None)
    if full is None:
        raise ValueError(f"no commit of {world} workers after the kill")
    return Recovery(
        time=time,
        world=world,
        next_update=after[0].time - time,
        full=full.time - time,
        # Later kills cannot add to these: checkpoints only get newer.
        repeated=len(known & {commit.update for commit in after}),
    )


def wrong_numbers(commits: Sequence[Commit], updates: int) -> int:
    """Updates of a finished training that are missing in its log, or there more than once."""
    counts = Counter(commit.update for commit in commits)
    return sum(counts[number] != 1 for number in range(updates)) + sum(number >= updates for number in counts)
