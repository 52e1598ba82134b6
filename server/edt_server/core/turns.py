"""Let jobs take turns while not all floors fit, so that no job waits for ever.

The jobs of a leaf with a strict policy take one turn together, as a `StrictQueue`. Its policy chooses which of them
runs, and lets the others wait. But the leaf must not starve other leaves, nor other leaves this one.

Stride scheduling (C. A. Waldspurger and W. E. Weihl, 1995): every turn adds quantum × least slots ÷ weight to what a
job has attained, and the job that attained least runs next. A new job starts as if it had just had a turn, after the
waiting jobs of its weight. Jobs of equal weight are therefore served first come, first served, and each waits at most
(⌈n ÷ G⌉ - 1) quanta when G of n fit. What was attained counts while jobs wait. When none waits, all are equal again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from edt_sdk.schemas.job import DEFAULT_PRIORITY
from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.deadlines import NEVER, Deadlines
from edt_server.core.job import CoreJob, turn

_SCALE = 1 << 32  # of what was attained: slot-microseconds per unit of weight, in whole numbers


@dataclass(slots=True)
class StrictQueue:
    """The jobs of a leaf with a strict policy. They share a turn, and count as one job of default priority.

    Attributes:
        group, user: the leaf. `user` is empty where the group has no level of users.
        jobs: the jobs that ask for slots.
        floor: the slots that the first of them needs.
        target: the slots that all of them are entitled to.
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
        self.name = f"\n{self.group}\n{self.user}"  # job ids have no line breaks

    @property
    def usable(self) -> int:
        """The number of jobs that ask for slots."""
        return len(self.jobs)

    @property
    def turn(self) -> int:
        """See `CoreJob.turn`."""
        return turn(self.attained, self.place)


TurnTaker = CoreJob | StrictQueue  # `turn`: the lower one runs first


def price(taker: TurnTaker, group: InstanceGroup) -> int:
    """Return what one turn adds to what the job has attained."""
    return max(1, round(group.quantum * 1e6) * taker.floor * _SCALE // taker.priority)


class Turns:
    """The turns of a resource group's jobs."""

    def __init__(self) -> None:
        self.waiting: dict[str, TurnTaker | None] = {}  # by name, None between `restored` and `rejoin`
        self._queues: dict[str, StrictQueue] = {}
        self._takers: dict[str, TurnTaker] = {}  # job that asks for slots → it, or its queue
        self._clock = 0  # the most that an admitted job had attained
        self._start = 0  # the clock when the present contest began: the first job had to wait
        self._contest = 0  # number of that contest
        self._places = 0
        self._running: dict[str, tuple[float, TurnTaker]] = {}  # turns that end by time, with their end
        self._ends = Deadlines(self._end_of)

    def ask(self, job: CoreJob, group: InstanceGroup) -> StrictQueue | None:
        """Record what the job asks for in that group, and return its queue where the group is strict."""
        before, now = self._takers.get(job.name), self._taker(job, group)
        if before is not now:
            self.forget(job)
            if now is not None:
                self._takers[job.name] = now
                if isinstance(now, StrictQueue):
                    now.jobs.add(job.name)
                if now.usable == 1 or now is job:
                    self._join(now, group)
        return now if isinstance(now, StrictQueue) else None

    def forget(self, job: CoreJob) -> StrictQueue | None:
        """Remove the job, and return the queue that it leaves."""
        before = self._takers.pop(job.name, None)
        if not isinstance(before, StrictQueue):
            self._leave(job)
            return None
        before.jobs.discard(job.name)
        if not before.jobs:
            self._leave(before)
            del self._queues[before.name]
        return before

    def queue_of(self, job: str) -> StrictQueue | None:
        """Return the job's queue, None where it has turns of its own."""
        found = self._takers.get(job)
        return found if isinstance(found, StrictQueue) else None

    def queues(self) -> Iterable[StrictQueue]:
        """Return all queues, in the order of their first jobs."""
        return self._queues.values()

    def renew(self, taker: TurnTaker, group: InstanceGroup) -> None:
        """Continue its turn, if it has one, under the quantum of its present group."""
        since = taker.turn_since
        self._stop(taker)
        if since is not None:
            self.begin(taker, group, since)

    def _taker(self, job: CoreJob, group: InstanceGroup) -> TurnTaker | None:
        if not job.usable:
            return None
        if group.policy == "fairshare":
            return job
        # The queue has a turn of its own. With the turn of its first job it would lose its place when that job leaves
        # (decision 017).
        queue = StrictQueue(group.name, job.owner if group.weights_of_users is not None else "")
        return self._queues.setdefault(queue.name, queue)

    def _join(self, taker: TurnTaker, group: InstanceGroup) -> None:
        # As if it had just had a turn. Without that charge an endless stream of short jobs would starve the long ones
        # (decision 016).
        start = self._clock + (price(taker, group) if self.waiting else 0)
        # A job that was here in this contest keeps what it attained, else it could leave and come back as a new one.
        same = taker.contest == self._contest and self.waiting
        taker.attained = max(taker.attained, start) if same else start
        taker.contest = self._contest
        self._to_back(taker)

    def _leave(self, taker: TurnTaker) -> None:
        self.waiting.pop(taker.name, None)
        self._stop(taker)

    def placed(self, job: TurnTaker) -> None:
        """Take in the new target of a job or queue."""
        if job.target == 0:
            self._stop(job)
        if job.target or not job.usable:
            self.waiting.pop(job.name, None)
            # New jobs start at the clock, so it follows the jobs that run.
            self._clock = max(self._clock, job.attained if job.target else 0)
        elif job.name not in self.waiting:
            if not self.waiting:
                self._contest += 1
                self._start = self._clock
                job.contest = self._contest
            self.waiting[job.name] = job

    def begin(self, job: TurnTaker, group: InstanceGroup, since: float) -> None:
        """Start a turn at `since`. Without preemption, and for jobs that cannot be preempted, it has no end by time."""
        job.turn_since = since
        by_itself = isinstance(job, CoreJob) and group.policy == "fairshare" and not job.keeps
        if group.preemption and (by_itself or isinstance(job, StrictQueue)):
            self._running[job.name] = since + group.quantum, job
            self._ends.watch(job.name)

    def end_expired(
        self, now: float, group_of: Callable[[TurnTaker], InstanceGroup], contested: Callable[[TurnTaker], bool]
    ) -> list[TurnTaker]:
        """End the turns that are over at `now` while others wait, and return their jobs and queues.

        A slot that is not `contested`, because no waiting job could use it, is not counted as a turn and continues.
        Otherwise an owner in its own slot would attain more and more, and new jobs, which start at the clock, with it.
        """
        over: list[TurnTaker] = []
        while self.waiting and (expired := self._ends.pop_expired(now)) is not None:
            over.append(self._running.pop(expired[1])[1])
        # In order of turns, not of ends: the new places decide between equals, and must not depend on the heap.
        over.sort(key=lambda job: job.turn)
        # All are asked before any turn ends: ending one would change the answer for the next.
        ended = [job for job in over if contested(job)]
        names = {job.name for job in ended}
        for job in over:
            if job.name in names:
                self.end_turn(job, group_of(job))
            else:
                self.begin(job, group_of(job), now)
        return ended

    def end_turn(self, job: TurnTaker, group: InstanceGroup) -> None:
        """End its present turn and put it after its equals."""
        # What it attained before this contest does not count: a job that trained alone for a night would wait for a
        # night. A turn costs a turn, not its real time, else a late timer would change the waiting times (decision
        # 016).
        base = job.attained if job.contest == self._contest else self._start
        job.attained = base + price(job, group)
        job.contest = self._contest
        self._stop(job)
        self._to_back(job)

    def next_end(self) -> float:
        """Return when the next turn is over, infinity when no job waits for one."""
        return self._ends.next() if self.waiting else NEVER

    def _end_of(self, name: str) -> float:
        return self._running[name][0] if name in self._running else NEVER

    def ends(self) -> list[float]:
        """Return when the present turns end, ascending. The list is empty while no job waits."""
        return sorted(end for end, _ in self._running.values()) if self.waiting else []

    def waiting_turns(self) -> list[int]:
        """Return the sort keys of everything that waits."""
        return [taker.turn for taker in self.waiting.values() if taker is not None]

    def state(self) -> list[Any]:
        """Return the state as JSON, without what is stored with the jobs."""
        queues = [[getattr(queue, name) for name in _KEPT] for queue in self._queues.values()]
        return [list(self.waiting), self._clock, self._start, self._contest, self._places, queues]

    @classmethod
    def restored(cls, state: list[Any]) -> Turns:
        """Return the turns of this `state`. Call `rejoin` for every job afterwards."""
        turns = cls()
        waiting, turns._clock, turns._start, turns._contest, turns._places, queues = state
        turns.waiting = dict.fromkeys(waiting)
        for values in queues:
            queue = StrictQueue(**dict(zip(_KEPT, values, strict=True)))
            turns._queues[queue.name] = queue
        return turns

    def rejoin(self, job: CoreJob, group: InstanceGroup) -> None:
        """Put the job back in line as it was, after `restored`."""
        taker = self._taker(job, group)
        if taker is not None:
            self._takers[job.name] = taker
            if taker.name in self.waiting:
                self.waiting[taker.name] = taker
        if isinstance(taker, StrictQueue):
            taker.jobs.add(job.name)
            if taker.turn_since is not None:
                self.begin(taker, group, taker.turn_since)
        if job.turn_since is not None:
            self.begin(job, group, job.turn_since)

    def _to_back(self, job: TurnTaker) -> None:
        self._places += 1
        job.place = self._places

    def _stop(self, job: TurnTaker) -> None:
        job.turn_since = None
        self._running.pop(job.name, None)


_KEPT = ("group", "user", "floor", "target", "attained", "place", "contest", "turn_since")
