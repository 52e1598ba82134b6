"""What a change of the number of workers cost, from the commit log and the times of the requests. Pure.

The *stall* is the time from the last commit at the old size to the first one at the new size, less the updates that
were committed on the way, each at its usual length; of two joiners one may arrive before the other, and what is trained
in between is no stall. Where nothing is committed in between that is: first commit at the new size − last commit at the
old size − median update at the new size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from benchmarks.commit_log import Commit


@dataclass(frozen=True, slots=True)
class Request:
    """That the number of workers shall change from `before` to `after`; `time` in seconds since the epoch."""

    time: float
    before: int
    after: int

    @property
    def grows(self) -> bool:
        """True when workers are to join."""
        return self.after > self.before


@dataclass(frozen=True, slots=True)
class Change:
    """One request, carried out.

    Attributes:
        request: what was asked for.
        stall: seconds in which no update was made that would have been made without the change.
        delay: seconds from the request to the first commit at the new size.
        repeated: updates that were committed a second time.
        steps: how many times the members changed on the way; of two joiners one may arrive before the other.
        updates: seconds that updates take of the delay if all take as long as usual: the rest of the one that was under
            way at the request, and the first one at the new size. Nobody can join sooner.
    """

    request: Request
    stall: float
    delay: float
    repeated: int
    steps: int
    updates: float = 0.0


def typical_updates(commits: Sequence[Commit]) -> dict[int, float]:
    """The median seconds of an update by number of workers.

    Counted between two commits in a row of the same members, but for the first such pair of each generation, which
    still has the cold caches of the change.
    """
    gaps: dict[int, list[float]] = defaultdict(list)
    fresh = True
    for earlier, later in pairwise(commits):
        if (earlier.generation, earlier.world) != (later.generation, later.world):
            fresh = True
        elif fresh:
            fresh = False
        elif later.update == earlier.update + 1:
            gaps[later.world].append(later.time - earlier.time)
    return {world: median(times) for world, times in gaps.items()}


def changes(commits: Sequence[Commit], requests: Sequence[Request]) -> list[Change]:
    """What each request cost.

    Args:
        commits: the whole log.
        requests: in their order; each was carried out before the next was made.

    Raises:
        ValueError: the log has no commit at the old size before, or at the new size after a request, or too few at a
            size to know how long an update usually takes.
    """
    usual = typical_updates(commits)
    return [_change(commits, request, usual) for request in requests]


def _change(commits: Sequence[Commit], request: Request, usual: Mapping[int, float]) -> Change:
    first = next((n for n, c in enumerate(commits) if c.time > request.time and c.world == request.after), None)
    if first is None:
        raise ValueError(f"no commit of {request.after} workers after the request for them")
    last = next((n for n in range(first - 1, -1, -1) if commits[n].world == request.before), None)
    if last is None:
        raise ValueError(f"no commit of {request.before} workers before there were {request.after}")
    made = commits[last + 1 : first + 1]
    unknown = {commit.world for commit in made} - usual.keys()
    if request.after in unknown:
        raise ValueError(f"too few updates in a row with {request.after} workers: let each size last longer")
    # A size that was only passed through may be unknown: the nearest known smaller one takes at least as long.
    expected = sum(usual[_known(commit.world, usual)] for commit in made)
    known = {commit.update for commit in commits[: last + 1]}
    return Change(
        request=request,
        stall=commits[first].time - commits[last].time - expected,
        delay=commits[first].time - request.time,
        repeated=sum(commit.update in known for commit in _same_members(commits, first)),
        updates=_rest(commits, request, usual[_known(request.before, usual)]) + usual[request.after],
        steps=sum(a.generation != b.generation for a, b in pairwise(commits[last : first + 1])),
    )


def _rest(commits: Sequence[Commit], request: Request, usual: float) -> float:
    """What was left, at a request, of the update under way."""
    begun = max((commit.time for commit in commits if commit.time <= request.time), default=request.time)
    return max(0.0, usual - (request.time - begun))


def _known(world: int, usual: Mapping[int, float]) -> int:
    return min(usual, key=lambda known: (abs(known - world), known))


def _same_members(commits: Sequence[Commit], first: int) -> Sequence[Commit]:
    """The commits from `first` on until the members change."""
    end = first
    while end < len(commits) and commits[end].generation == commits[first].generation:
        end += 1
    return commits[first:end]
