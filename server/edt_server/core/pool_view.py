"""Collect what the reasons of jobs need to know about the other jobs of their resource group.

It describes the pool between two events, so that a list of reasons costs one look at every job, not one look per job
and reason.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.deadlines import NEVER
from edt_server.core.job import CoreJob
from edt_server.core.pool import Pool
from edt_server.core.reason import Situation, SlotForecast
from edt_server.core.rule import Rule

Ends = Mapping[str, tuple[float, float]]
_FEW = 64  # most jobs for which the division is repeated to improve one sentence


class PoolView:
    """The jobs of a resource group between two events.

    Args:
        pool: the resource group.
        jobs: its jobs, in order of arrival.
    """

    def __init__(self, pool: Pool, jobs: Iterable[CoreJob]) -> None:
        self._pool = pool
        self._jobs = {job.name: job for job in jobs}
        self._running = {job.name: job for job in self._jobs.values() if job.target}
        self._leaving = tuple(job for job in self._jobs.values() if job.leaving)
        self._turns = sorted(pool.turns.waiting_turns())
        self._turn_ends = pool.turns.ends()
        priorities = {job.priority if job.floor == 1 else -1 for job in self._jobs.values()}
        self._even = len(priorities) == 1 and -1 not in priorities
        self._if_gone: dict[str, Rule] = {}
        self._ends: Ends = {}
        self._known: tuple[list[tuple[float, str]], list[tuple[float, str]]] = [], []

    def situation(self, me: CoreJob, group: InstanceGroup, now: float | None, ends: Ends) -> Situation:
        """Return the situation of a job of this pool in `group`.

        `now` and `ends` mean what they mean in `Core.reason`.
        """
        cut = self._pool.rule.cut(me.name)
        return Situation(
            me=me,
            group=group,
            cut=cut,
            slots=len(self._pool.slots),
            most=self._pool.rule.most(group.name),
            running=self._running,
            leaving=self._leaving,
            ahead=self._ahead(me) if me.target == 0 else 0,
            turns=self._pool.turns.next_end() < NEVER,
            if_gone=self._if_rival_ends(cut.rival, me),
            forecast=self._forecast(me, group.quantum, ends),
            now=now,
        )

    def _ahead(self, job: CoreJob) -> int:
        """Return how many jobs and queues wait for a turn before this job, or before its queue."""
        return bisect_left(self._turns, (self._pool.turns.queue_of(job.name) or job).turn)

    def _if_rival_ends(self, rival: str, job: CoreJob) -> int | None:
        """Return the job's target without its rival. None where that takes too long to compute."""
        if rival not in self._jobs or len(self._jobs) > _FEW:
            return None
        rule = self._if_gone.get(rival)
        if rule is None:
            rule = self._if_gone[rival] = Rule(self._pool.groups, len(self._pool.slots))
            for name in self._jobs:
                if name != rival:
                    rule.put(self._pool.rule.claim(name))
            for queue in self._pool.turns.queues():
                rule.set_turn(queue.group, queue.user, queue.turn)
            rule.settle()
        return rule.target(job.name)

    def _forecast(self, me: CoreJob, quantum: float, ends: Ends) -> SlotForecast | None:
        """Return when turns and ends of jobs make room for the job, as far as they are known.

        Args:
            me: a job that holds less than it asks for.
            quantum: seconds of a turn in its group.
            ends: job → earliest and latest end by its progress.
        """
        if len(me.held) < me.target:
            return None  # its slots are already on the way
        turns = [] if me.target else self._turn_ends
        firsts, lasts = self._ends_of_others(me, ends)
        if not (turns or firsts):
            return None
        earliest = min([*turns[:1], *firsts[:1]])
        if me.target:
            return SlotForecast(earliest, lasts[0])
        # Each turn that ends makes room for one job if all are equal. A job that needs many slots or has less weight
        # may be passed over, so that no latest time can be given.
        return SlotForecast(earliest, _nth(self._ahead(me), turns, quantum, lasts) if self._even else None)

    def _ends_of_others(self, me: CoreJob, ends: Ends) -> tuple[list[float], list[float]]:
        """Return the earliest and the latest ends of the other jobs that hold slots, each ascending."""
        if ends is not self._ends:
            here = [name for name in ends if name in self._jobs and self._jobs[name].held]
            self._ends = ends
            self._known = sorted((ends[name][0], name) for name in here), sorted((ends[name][1], name) for name in here)
        firsts, lasts = ([at for at, name in known if name != me.name] for known in self._known)
        return firsts, lasts


def _nth(number: int, turns: list[float], quantum: float, ends: list[float]) -> float | None:
    """Return when the `number`-th slot (from 0) becomes free, None when unknown: turns end repeatedly, jobs once."""

    def turn(n: int) -> float:
        if n < 0:
            return float("-inf")
        return turns[n % len(turns)] + quantum * (n // len(turns)) if turns else NEVER

    if turns and turns[-1] - turns[0] > quantum:
        return None  # turns of different lengths
    # The first `jobs` slots come from jobs that end, the others from turns: take the best such mixture.
    mixtures = range(min(number + 1, len(ends)) + 1)
    found = min(max(turn(number - jobs), ends[jobs - 1] if jobs else float("-inf")) for jobs in mixtures)
    return None if found == NEVER else found
