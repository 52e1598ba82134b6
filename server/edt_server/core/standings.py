"""Who holds what over one resource group, as the reasons of its jobs need it: worked out once for all of them.

Pictures the pool as it is between two events. Whoever asks for the reasons of all jobs that wait, a list of them for
instance, pays for looking at every job once, not once a job.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from edt_server.core.job import Job
from edt_server.core.patience import NEVER
from edt_server.core.pool import Pool
from edt_server.core.reason import Forecast, Standing
from edt_server.core.rule import Rule

Ends = Mapping[str, tuple[float, float]]
_FEW = 64  # jobs that are divided among once more for the sake of one sentence


class Standings:
    """The jobs over one resource group, at rest.

    Args:
        pool: the resource group.
        jobs: those over it, in order of arrival.

    Attributes:
        running: jobs that are entitled to slots.
        leaving: jobs that have slots to leave.
        taking_turns: whether a turn ends some time.
    """

    def __init__(self, pool: Pool, jobs: Iterable[Job]) -> None:
        self._pool = pool
        self._jobs = {job.name: job for job in jobs}
        self.running = {job.name: standing(job) for job in self._jobs.values() if job.target}
        self.leaving = tuple(standing(job) for job in self._jobs.values() if job.leaving)
        self.taking_turns = pool.turns.next_end() < NEVER
        self._turns = sorted(pool.turns.waiting_turns())
        self._turn_ends = pool.turns.ends()
        priorities = {job.priority if job.floor == 1 else -1 for job in self._jobs.values()}
        self._even = len(priorities) == 1 and -1 not in priorities
        self._if_gone: dict[str, Rule] = {}
        self._ends: Ends = {}
        self._known: tuple[list[tuple[float, str]], list[tuple[float, str]]] = [], []

    def ahead(self, job: Job) -> int:
        """How many wait for a turn before this job, or before the queue that it is in."""
        return bisect_left(self._turns, (self._pool.turns.party(job.name) or job).turn)

    def if_gone(self, rival: str, job: Job) -> int | None:
        """What the job would be entitled to if its rival ended now; None where that takes long to work out."""
        if rival not in self._jobs or len(self._jobs) > _FEW:
            return None
        rule = self._if_gone.get(rival)
        if rule is None:
            rule = self._if_gone[rival] = Rule(self._pool.groups, len(self._pool.slots))
            for name in self._jobs:
                if name != rival:
                    rule.put(self._pool.rule.claim(name))
            for party in self._pool.turns.parties():
                rule.line_up(party.group, party.user, party.turn)
            rule.settle()
        return rule.target(job.name)

    def forecast(self, me: Job, quantum: float, ends: Ends) -> Forecast | None:
        """When turns and ends of jobs make room for the job, as far as they are known.

        Args:
            me: a job that holds less than it asks for.
            quantum: seconds of a turn, where it is.
            ends: job → when it ends by its progress, not before and not after.
        """
        if len(me.held) < me.target:
            return None  # as soon as others have left
        turns = [] if me.target else self._turn_ends
        firsts, lasts = self._ends_of_others(me, ends)
        if not (turns or firsts):
            return None
        earliest = min([*turns[:1], *firsts[:1]])
        if me.target:
            return Forecast(earliest, lasts[0])
        # Each turn that ends makes room for one, of equals; what needs many slots or is lighter may be passed over.
        return Forecast(earliest, _nth(self.ahead(me), turns, quantum, lasts) if self._even else None)

    def _ends_of_others(self, me: Job, ends: Ends) -> tuple[list[float], list[float]]:
        """When the other jobs that hold slots end, at the earliest and at the latest; each ascending."""
        if ends is not self._ends:
            here = [name for name in ends if name in self._jobs and self._jobs[name].held]
            self._ends = ends
            self._known = sorted((ends[name][0], name) for name in here), sorted((ends[name][1], name) for name in here)
        firsts, lasts = ([at for at, name in known if name != me.name] for known in self._known)
        return firsts, lasts


def _nth(number: int, turns: list[float], quantum: float, ends: list[float]) -> float | None:
    """When the `number`-th slot, from 0, becomes free: turns end again and again, jobs once. None when unknown."""

    def turn(n: int) -> float:
        if n < 0:
            return float("-inf")
        return turns[n % len(turns)] + quantum * (n // len(turns)) if turns else NEVER

    if turns and turns[-1] - turns[0] > quantum:
        return None  # of different lengths
    # The first so many ends, and turns for the rest: the best such mixture.
    mixtures = range(min(number + 1, len(ends)) + 1)
    found = min(max(turn(number - jobs), ends[jobs - 1] if jobs else float("-inf")) for jobs in mixtures)
    return None if found == NEVER else found


def standing(job: Job) -> Standing:
    """The job as others see it."""
    return Standing(
        job=job.name,
        group=job.group,
        priority=job.priority,
        floor=job.floor,
        asked=job.asked,
        held=len(job.held),
        leaving=len(job.leaving),
        entitled=job.target,
        arrival=job.arrival,
        short_since=job.short_since,
        suspended=job.suspended,
    )
