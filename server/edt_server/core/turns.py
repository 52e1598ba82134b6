"""Turns: who runs while the least that all jobs need does not fit, so that nobody waits for ever.

Stride scheduling (C. A. Waldspurger and W. E. Weihl, 1995): every turn adds quantum × least slots ÷ weight to what a
job has attained, and who attained least runs next. A newcomer starts as if it had just had a turn, behind those of its
weight that wait: equals are served first come, first served, and each waits at most (⌈n ÷ G⌉ - 1) quanta when G of n
fit. What was attained counts for as long as somebody waits; then everybody is even again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.job import Job

_SCALE = 1 << 32  # of what was attained: slot-microseconds per unit of weight, in whole numbers


def price(job: Job, group: InstanceGroup) -> int:
    """What one turn adds to what the job has attained."""
    return max(1, round(group.quantum * 1e6) * job.floor * _SCALE // job.priority)


class Turns:
    """The turns of the jobs over one resource group."""

    def __init__(self) -> None:
        self.waiting: dict[str, None] = {}  # jobs that ask for slots and are entitled to none
        self._clock = 0  # the most anybody had attained who was let in
        self._start = 0  # what everybody had attained when somebody began to wait
        self._contest = 0  # how often that was
        self._places = 0
        self._running: dict[str, tuple[float, Job]] = {}  # turns that end, and when
        self._ends: list[tuple[float, str]] = []  # the same as a heap, with some that are over already

    def join(self, job: Job, group: InstanceGroup) -> None:
        """The job asks for slots from now on."""
        start = self._clock + (price(job, group) if self.waiting else 0)
        job.attained = max(job.attained, start) if job.contest == self._contest and self.waiting else start
        job.contest = self._contest
        self._line_up(job)

    def leave(self, job: Job) -> None:
        """The job asks for nothing here any more."""
        self.waiting.pop(job.name, None)
        self._stop(job)

    def placed(self, job: Job) -> None:
        """What the job is entitled to was worked out anew."""
        if job.target == 0:
            self._stop(job)
        if job.target or not job.asked:
            self.waiting.pop(job.name, None)
            self._clock = max(self._clock, job.attained if job.target else 0)
        elif job.name not in self.waiting:
            if not self.waiting:
                self._contest += 1
                self._start = self._clock
                job.contest = self._contest
            self.waiting[job.name] = None

    def begin(self, job: Job, group: InstanceGroup, since: float) -> None:
        """The job, which runs, began a turn then; where nobody takes it from this job it never ends."""
        job.turn_since = since
        if group.preemption and group.policy == "fairshare" and not job.rigid:
            end = since + group.quantum
            self._running[job.name] = end, job
            heapq.heappush(self._ends, (end, job.name))
            if len(self._ends) > 2 * len(self._running) + 64:
                self._ends = [(each, name) for name, (each, _) in self._running.items()]
                heapq.heapify(self._ends)

    def end(self, now: float, group_of: Callable[[Job], InstanceGroup]) -> list[Job]:
        """The jobs whose turn is over at `now` while others wait, each behind its equals now."""
        over: list[Job] = []
        while self.next_end() <= now:
            _, name = heapq.heappop(self._ends)
            over.append(self._running.pop(name)[1])
        over.sort(key=lambda job: job.turn)
        for job in over:
            base = job.attained if job.contest == self._contest else self._start
            job.attained = base + price(job, group_of(job))
            job.contest = self._contest
            job.turn_since = None
            self._line_up(job)
        return over

    def next_end(self) -> float:
        """When the next turn is over, infinity when nobody waits for one."""
        while self.waiting and self._ends:
            end, name = self._ends[0]
            if name in self._running and self._running[name][0] == end:
                return end
            heapq.heappop(self._ends)
        return float("inf")

    def ends(self) -> list[float]:
        """When the turns end that are under way, the next one first; nothing while nobody waits for one."""
        return sorted(end for end, _ in self._running.values()) if self.waiting else []

    def state(self) -> list[Any]:
        """All of it as JSON, but for what the jobs tell."""
        return [list(self.waiting), self._clock, self._start, self._contest, self._places]

    @classmethod
    def restored(cls, state: list[Any]) -> Turns:
        """What `state` told; `begin` is still to be called for every job that has a turn."""
        turns = cls()
        waiting, turns._clock, turns._start, turns._contest, turns._places = state
        turns.waiting = dict.fromkeys(waiting)
        return turns

    def _line_up(self, job: Job) -> None:
        self._places += 1
        job.place = self._places

    def _stop(self, job: Job) -> None:
        job.turn_since = None
        self._running.pop(job.name, None)
