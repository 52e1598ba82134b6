"""Turns: who runs while the least that all jobs need does not fit, so that nobody waits for ever.

The jobs of a leaf with a strict policy take one turn together, as a `Party`: which of them runs is that policy's
choice, and that others wait is what it means; but the leaf is not to starve others, nor others the leaf.

Stride scheduling (C. A. Waldspurger and W. E. Weihl, 1995): every turn adds quantum × least slots ÷ weight to what a
job has attained, and who attained least runs next. A newcomer starts as if it had just had a turn, behind those of its
weight that wait: equals are served first come, first served, and each waits at most (⌈n ÷ G⌉ - 1) quanta when G of n
fit. What was attained counts for as long as somebody waits; then everybody is even again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from edt_sdk.schemas.job import DEFAULT_PRIORITY
from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.job import Job, turn

_SCALE = 1 << 32  # of what was attained: slot-microseconds per unit of weight, in whole numbers


class Turner(Protocol):
    """Who takes turns: a job, or the party of a leaf with a strict policy. See `Job`."""

    name: str
    attained: int
    place: int
    contest: int
    turn_since: float | None

    @property
    def turn(self) -> int:
        """Lower runs first."""

    @property
    def asked(self) -> int:
        """Not 0 while it asks for slots."""

    @property
    def target(self) -> int:
        """Not 0 while it is entitled to some."""

    @property
    def floor(self) -> int:
        """Slots that a turn takes at least."""

    @property
    def priority(self) -> int:
        """Turns come in proportion to it."""


@dataclass(slots=True)
class Party:
    """The jobs of one leaf with a strict policy, in line for one turn. Beside others it counts as one usual job.

    Attributes:
        group, user: the leaf; no user where the group has no level of users.
        jobs: those that ask for slots.
        floor: what the first of them needs.
        target: what all of them are entitled to.
    """

    group: str
    user: str
    jobs: set[str] = field(default_factory=set)
    floor: int = 1
    target: int = 0
    attained: int = 0
    place: int = 0
    contest: int = 0
    turn_since: float | None = None

    name: str = field(init=False)
    priority: int = field(init=False, default=DEFAULT_PRIORITY)

    def __post_init__(self) -> None:
        self.name = f"\n{self.group}\n{self.user}"  # no job is called that

    @property
    def asked(self) -> int:
        """How many jobs ask for slots."""
        return len(self.jobs)

    @property
    def turn(self) -> int:
        """See `Job.turn`."""
        return turn(self.attained, self.place)


def price(turner: Turner, group: InstanceGroup) -> int:
    """What one turn adds to what the job has attained."""
    return max(1, round(group.quantum * 1e6) * turner.floor * _SCALE // turner.priority)


class Turns:
    """The turns of the jobs over one resource group."""

    def __init__(self) -> None:
        self.waiting: dict[str, Turner | None] = {}  # by name: who asks for slots and is entitled to none
        self._parties: dict[str, Party] = {}
        self._in_line: dict[str, Turner] = {}  # job that asks for slots → it, or its party
        self._clock = 0  # the most anybody had attained who was let in
        self._start = 0  # what everybody had attained when somebody began to wait
        self._contest = 0  # how often that was
        self._places = 0
        self._running: dict[str, tuple[float, Turner]] = {}  # turns that end, and when
        self._ends: list[tuple[float, str]] = []  # the same as a heap, with some that are over already

    def ask(self, job: Job, group: InstanceGroup) -> Party | None:
        """The job asks for slots, or for none, in that group from now on; its party where the group is strict."""
        before, now = self._in_line.get(job.name), self._turner(job, group)
        if before is not now:
            self.forget(job)
            if now is not None:
                self._in_line[job.name] = now
                if isinstance(now, Party):
                    now.jobs.add(job.name)
                if now.asked == 1 or now is job:
                    self._join(now, group)
        return now if isinstance(now, Party) else None

    def forget(self, job: Job) -> Party | None:
        """The job asks for nothing here any more; the party that it leaves."""
        before = self._in_line.pop(job.name, None)
        if not isinstance(before, Party):
            self._leave(job)
            return None
        before.jobs.discard(job.name)
        if not before.jobs:
            self._leave(before)
            del self._parties[before.name]
        return before

    def party(self, job: str) -> Party | None:
        """The party that the job is in line with, None where it has turns of its own."""
        found = self._in_line.get(job)
        return found if isinstance(found, Party) else None

    def parties(self) -> Iterable[Party]:
        """All there are, in the order of their first jobs."""
        return self._parties.values()

    def renew(self, turner: Turner, group: InstanceGroup) -> None:
        """Its turn, if it has one, goes on, and ends when the group it is in now says."""
        since = turner.turn_since
        self._stop(turner)
        if since is not None:
            self.begin(turner, group, since)

    def _turner(self, job: Job, group: InstanceGroup) -> Turner | None:
        if not job.asked:
            return None
        if group.policy == "fairshare":
            return job
        party = Party(group.name, job.owner if group.user_shares is not None else "")
        return self._parties.setdefault(party.name, party)

    def _join(self, turner: Turner, group: InstanceGroup) -> None:
        start = self._clock + (price(turner, group) if self.waiting else 0)
        same = turner.contest == self._contest and self.waiting
        turner.attained = max(turner.attained, start) if same else start
        turner.contest = self._contest
        self._line_up(turner)

    def _leave(self, turner: Turner) -> None:
        self.waiting.pop(turner.name, None)
        self._stop(turner)

    def placed(self, job: Turner) -> None:
        """What it is entitled to was worked out anew."""
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
            self.waiting[job.name] = job

    def begin(self, job: Turner, group: InstanceGroup, since: float) -> None:
        """It runs, and began a turn then; where nobody takes it from it the turn never ends."""
        job.turn_since = since
        by_itself = isinstance(job, Job) and group.policy == "fairshare" and not job.rigid
        if group.preemption and (by_itself or isinstance(job, Party)):
            end = since + group.quantum
            self._running[job.name] = end, job
            heapq.heappush(self._ends, (end, job.name))
            if len(self._ends) > 2 * len(self._running) + 64:
                self._ends = [(each, name) for name, (each, _) in self._running.items()]
                heapq.heapify(self._ends)

    def end(
        self, now: float, group_of: Callable[[Turner], InstanceGroup], contested: Callable[[Turner], bool]
    ) -> list[Turner]:
        """Those whose turn is over at `now` while others wait, each behind its equals now.

        A place that is not `contested`, as nobody who waits could have it, is no turn, and goes on: were it counted,
        an owner in its own slot would attain more and more, and newcomers, who begin where others are, with it.
        """
        over: list[Turner] = []
        while self.next_end() <= now:
            _, name = heapq.heappop(self._ends)
            over.append(self._running.pop(name)[1])
        over.sort(key=lambda job: job.turn)
        ended = [job for job in over if contested(job)]
        names = {job.name for job in ended}
        for job in over:
            if job.name in names:
                self.over(job, group_of(job))
            else:
                self.begin(job, group_of(job), now)
        return ended

    def over(self, job: Turner, group: InstanceGroup) -> None:
        """A turn of it has ended."""
        base = job.attained if job.contest == self._contest else self._start
        job.attained = base + price(job, group)
        job.contest = self._contest
        self._stop(job)
        self._line_up(job)

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

    def waiting_turns(self) -> list[int]:
        """The turns of all who wait."""
        return [turner.turn for turner in self.waiting.values() if turner is not None]

    def state(self) -> list[Any]:
        """All of it as JSON, but for what the jobs tell."""
        parties = [[getattr(party, name) for name in _KEPT] for party in self._parties.values()]
        return [list(self.waiting), self._clock, self._start, self._contest, self._places, parties]

    @classmethod
    def restored(cls, state: list[Any]) -> Turns:
        """What `state` told; `again` is still to be called for every job."""
        turns = cls()
        waiting, turns._clock, turns._start, turns._contest, turns._places, parties = state
        turns.waiting = dict.fromkeys(waiting)
        for values in parties:
            party = Party(**dict(zip(_KEPT, values, strict=True)))
            turns._parties[party.name] = party
        return turns

    def again(self, job: Job, group: InstanceGroup) -> None:
        """The job is in line as it was, after `restored`."""
        turner = self._turner(job, group)
        if turner is not None:
            self._in_line[job.name] = turner
            if turner.name in self.waiting:
                self.waiting[turner.name] = turner
        if isinstance(turner, Party):
            turner.jobs.add(job.name)
            if turner.turn_since is not None:
                self.begin(turner, group, turner.turn_since)
        if job.turn_since is not None:
            self.begin(job, group, job.turn_since)

    def _line_up(self, job: Turner) -> None:
        self._places += 1
        job.place = self._places

    def _stop(self, job: Turner) -> None:
        job.turn_since = None
        self._running.pop(job.name, None)


_KEPT = ("group", "user", "floor", "target", "attained", "place", "contest", "turn_since")
