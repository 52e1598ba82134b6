"""Play a workload against a scheduler as discrete events. The only clock is the times of the events.

The scheduler is the service's core object, or any object that takes the core's events and answers with its
instructions (`Scheduler`). The engine plays everything around it: jobs that arrive, train at the speed of their size,
and end, workers that need a while to leave a revoked slot, and the pause that a change of size costs. It knows no
policy.

A job runs on the slots it was granted and has not left. Whenever their number changes it pauses for `resize_cost`
seconds (the first start included), then continues at the new speed. A change during the pause restarts the pause.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from edt_sdk.schemas.errors import Unprocessable
from edt_server.core.events import (
    CoreEvent,
    JobArrived,
    JobDemand,
    JobGone,
    SlotReleased,
    SlotsChanged,
    SpeedMeasured,
    TimePassed,
)
from edt_server.core.instructions import Grant, Instruction, Revoke
from edt_server.simulator.workload import SimulatedJob

# The numbers order the events of one instant: the scheduler's round and TimePassed come after all arrivals, ends and
# releases of that instant, and hosts come and go by what follows from all these.
_ARRIVAL, _END, _RELEASE, _GIVEN_UP, _DECIDE, _TICK, _LOOK = range(7)
_PATIENCE = 1000  # ticks after which progress is checked
_SHORTEST_TICK = 0.001  # seconds: a scheduler that asks to be woken at once, again and again, must not stop time


class Scheduler(Protocol):
    """The scheduler that the engine plays against: `edt_server.core.Core`, or another with its interface."""

    def apply(self, event: CoreEvent, now: float) -> Sequence[Instruction]:
        """Take an event in and return the slots granted and revoked. A revoked slot is free when it is released."""
        ...

    def next_wake(self, now: float) -> float | None:
        """Return when it wants TimePassed, None for never."""
        ...


class ComingSlots(Protocol):
    """Hosts that come and go: `Machines`."""

    def look(self, now: float) -> SlotsChanged | None:
        """Return the slots that there are from now on, None when they stay as they are."""
        ...

    def next_look(self) -> float | None:
        """Return when to look again although nothing happens before, None for never."""
        ...


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The behaviour of the world around the scheduler, in seconds.

    Attributes:
        resize_cost: how long a job pauses whenever the number of its workers changes.
        grace: the grace period, from the revocation of a slot until its worker has left it.
        interval: the scheduler learns of arrivals and ends only at multiples of this, 0 for at once.
        tell_speeds: pass it each job's speed table when the job arrives (as workers of a real job measure it).
    """

    resize_cost: float = 1.0
    grace: float = 0.0
    interval: float = 0.0
    tell_speeds: bool = False


@dataclass(frozen=True, slots=True)
class Life:
    """The life of a job in the simulation.

    Attributes:
        sizes: (time, workers) from each change on. The first is its start, and after its end it has 0 workers.
        end: when it had done its work. None when it never did, or was given up before.
        restarts: how often it continued with another number of workers, its first start not counted.
    """

    job: SimulatedJob
    sizes: tuple[tuple[float, int], ...]
    end: float | None
    restarts: int

    @property
    def start(self) -> float | None:
        """The time when it got its first worker, None when it never did."""
        return self.sizes[0][0] if self.sizes else None


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The result of a simulation: one life per job, in order of arrival.

    `latencies` are the seconds each call of the scheduler took by the clock the engine was given, in order.
    """

    lives: tuple[Life, ...]
    slots: int
    latencies: tuple[float, ...]


@dataclass(slots=True)
class _Running:
    """The present state of a job: `left` is the work left at `since`, and it pauses until `still`. `gone` is final."""

    job: SimulatedJob
    left: float
    occupied: int = 0
    size: int = 0
    last_size: int = 0
    since: float = 0.0
    still: float = 0.0
    version: int = 0
    end: float | None = None
    gone: bool = False
    restarts: int = 0
    sizes: list[tuple[float, int]] = field(default_factory=list)

    def advance(self, now: float) -> None:
        # Nothing is computed until `still`. Part of the interval may be the pause of the last change.
        moving = now - max(self.since, self.still)
        if moving > 0 and self.size:
            self.left = max(0.0, self.left - moving * self.job.speed.at(self.size))
        self.since = max(self.since, now)

    def resize(self, now: float, pause: float) -> None:
        self.advance(now)
        if self.occupied and self.last_size and self.occupied != self.last_size:
            self.restarts += 1
        self.size = self.occupied
        # Kept while the job holds no slot, so that a later start at the same size is no restart.
        self.last_size = self.size or self.last_size
        self.still = now + pause
        self.version += 1
        self.sizes.append((now, self.size))

    def ends(self) -> float:
        speed = self.job.speed.at(self.size)
        return max(self.since, self.still) + self.left / speed if speed > 0 else float("inf")


class Engine:
    """A single simulation.

    Args:
        scheduler: gets all events. Its `slots` and plan are set already.
        jobs: the workload. Jobs named in `present` have arrived in the scheduler before.
        clock: measures how long the scheduler takes. By default nothing is measured.
        watch: a callback that is called at intervals with (simulated seconds, jobs ended, jobs).
        present: jobs that are there already → slots they occupy. They run from `begin` on.
        begin: the time at which the simulation starts.
        hosts: hosts that come and go. None where the slots stay as they are. `slots` is then the most there can be.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        slots: int,
        jobs: Sequence[SimulatedJob],
        settings: SimulationSettings = SimulationSettings(),  # frozen
        *,
        clock: Callable[[], float] = lambda: 0.0,
        watch: Callable[[float, int, int], None] | None = None,
        present: Mapping[str, int] | None = None,
        begin: float = 0.0,
        hosts: ComingSlots | None = None,
    ) -> None:
        self._scheduler, self._slots, self._settings = scheduler, slots, settings
        self._clock, self._watch, self._hosts = clock, watch, hosts
        self._looks_at: float | None = None  # when to look at the hosts next
        self._jobs = {job.name: _Running(job, job.work, since=begin) for job in jobs}
        if len(self._jobs) != len(jobs):
            raise ValueError("two jobs of the workload have the same name")
        self._queue: list[tuple[float, int, int, tuple[str, int]]] = []
        self._numbers = count()
        self._told: list[CoreEvent] = []  # the events of the scheduler's next round
        self._touched: dict[str, None] = {}
        self._latencies: list[float] = []
        self._ended = 0
        self._wake: float | None = None
        self._ticks = 0
        self._left = -1.0  # work left of all jobs at the last check of progress
        for job in jobs:
            if present is not None and job.name in present:
                self._begin(job.name, present[job.name], begin)
            else:
                self._push(max(begin, job.time), _ARRIVAL, job.name)

    def run(self, *, until: str | None = None, most: int | None = None) -> SimulatedRun:
        """Play until every job has ended, or only the job `until`, or nothing can happen any more.

        Jobs that have not ended after `most` instants have no end. Unprocessable when jobs take turns faster than they
        can change size, and nothing is ever done.
        """
        awaited = None if until is None else self._jobs[until]
        instants = count(1)
        while self._queue and not (awaited is not None and awaited.gone) and (most is None or next(instants) <= most):
            now = self._queue[0][0]
            # An event may push another at this same instant (a release without a grace period). Both come before
            # `_resize`.
            while self._queue and self._queue[0][0] <= now:
                _, kind, _, (job, number) = heapq.heappop(self._queue)
                self._happen(kind, job, number, now)
                if self._hosts is not None and kind != _LOOK:
                    self._look_by(now)
            self._resize(now)
            if self._watch is not None:
                self._watch(now, self._ended, len(self._jobs))
        lives = [
            Life(each.job, tuple(each.sizes), each.end, each.restarts)
            for each in sorted(self._jobs.values(), key=lambda each: each.job.time)
        ]
        return SimulatedRun(tuple(lives), self._slots, tuple(self._latencies))

    def leave(self, job: str, slot: int, now: float) -> None:
        """Let the worker of `job` in `slot`, revoked before the simulation starts, leave after the grace."""
        self._push(now + self._settings.grace, _RELEASE, job, slot)

    def tell(self, event: CoreEvent, now: float) -> None:
        """Pass an event that is not in the workload to the scheduler, at the start."""
        self._apply(event, now)
        self._push(now, _TICK)  # an instant at which its consequences happen

    # --- what happens -------------------------------------------------------------------------------------------------

    def _happen(self, kind: int, job: str, number: int, now: float) -> None:
        if kind == _ARRIVAL:
            # An arrival changes no size, but `_resize` may ask for a wake-up only where there was a change.
            self._touched[job] = None
            self._tell(self._arrivals(self._jobs[job].job), now)
        elif kind == _END:
            self._end(job, number, now)
        elif kind == _RELEASE:
            self._release(job, number, now)
        elif kind == _DECIDE:
            told, self._told = self._told, []
            for event in told:
                self._apply(event, now)
        elif kind == _GIVEN_UP:
            self._give_up(self._jobs[job], now)
        elif kind == _LOOK:
            self._look(now)
        else:
            self._tick(now)

    def _arrivals(self, job: SimulatedJob) -> list[CoreEvent]:
        arrived = JobArrived(
            job.name,
            job.priority,
            job.max_workers,
            job.instance_group,
            owner=job.owner,
            min_workers=job.min_workers,
            slots_per_unit=job.slots_per_unit,
            rigid=job.keeps,
        )
        events: list[CoreEvent] = [arrived]
        if self._settings.tell_speeds:
            events.append(SpeedMeasured(job.name, job.speed.table(min(job.max_workers, self._slots))))
        return [*events, JobDemand(job.name, job.max_workers)]

    def _begin(self, name: str, occupied: int, now: float) -> None:
        each = self._jobs[name]
        self._touched[name] = None
        if occupied:
            each.occupied = occupied
            # No pause: the job ran at this size before the simulation starts.
            each.resize(now, 0.0)
            self._await_end(each)

    def _end(self, name: str, version: int, now: float) -> None:
        each = self._jobs[name]
        # An outdated end: the job has changed size since. Every change pushes a new end and does not search for the
        # old.
        if each.gone or each.version != version:
            return
        each.advance(now)
        each.left, each.end = 0.0, now
        self._leave_all(each, now)
        self._tell([JobGone(name)], now)

    def _give_up(self, each: _Running, now: float) -> None:
        if not each.gone:
            self._leave_all(each, now)
            # Not through `_tell`: the scheduler decided this itself and does not learn it in the next round.
            self._apply(JobGone(each.job.name), now)

    def _leave_all(self, each: _Running, now: float) -> None:
        each.gone = True
        if each.size:
            each.sizes.append((now, 0))
        each.size = each.occupied = 0
        self._touched[each.job.name] = None
        self._ended += 1

    def _release(self, name: str, slot: int, now: float) -> None:
        each = self._jobs[name]
        if not each.gone:
            # An ended job has freed all its slots with JobGone. A release that arrives later must not free them twice.
            each.occupied -= 1
            self._touched[name] = None
            self._apply(SlotReleased(name, slot), now)

    def _tick(self, now: float) -> None:
        # Other ticks are outdated, because the scheduler named another time since, or come from `tell`.
        if now == self._wake:
            self._wake = None
            self._apply(TimePassed(), now)
            # Jobs that take turns faster than they can change size would otherwise play for ever.
            self._ticks += 1
            if self._ticks >= _PATIENCE:
                self._look_for_work(now)

    def _look_by(self, time: float) -> None:
        """Look at the hosts at that time at the latest."""
        if self._looks_at is None or time < self._looks_at:
            self._looks_at = time
            self._push(time, _LOOK)

    def _look(self, now: float) -> None:
        # An outdated look, because an event made an earlier one necessary.
        if self._hosts is None or now != self._looks_at:
            return
        self._looks_at = None
        changed = self._hosts.look(now)
        if changed is not None:
            self._apply(changed, now)
            self._look_by(now)  # jobs may hold the new slots now
        elif (after := self._hosts.next_look()) is not None:
            self._look_by(after)

    def _look_for_work(self, now: float) -> None:
        """Raise where jobs take turns so fast that none makes progress."""
        self._ticks = 0
        working = [each.left for each in self._jobs.values() if each.size and each.still <= now]
        # Work without an end never shrinks, and one such job would hide the progress of all others.
        left = sum(each.left for each in self._jobs.values() if each.left < float("inf"))
        if not working and left == self._left:
            raise Unprocessable(
                f"After {now:.0f} s no job gets on any more: each turn ends before the pause that begins it.",
                hint="Give the instance groups a longer quantum, or make resizing cheaper.",
                field="quantum",
            )
        self._left = left

    def _tell(self, events: Sequence[CoreEvent], now: float) -> None:
        """Pass an event to the scheduler now, or at the end of the round."""
        interval = self._settings.interval
        if not interval:
            for event in events:
                self._apply(event, now)
            return
        if not self._told:
            # One wake-up per round: later events of the round join the list.
            self._push(-(-now // interval) * interval, _DECIDE)
        self._told += events

    def _apply(self, event: CoreEvent, now: float) -> None:
        # Only the scheduler's own time counts, not that of the simulated world around it.
        began = self._clock()
        instructions = self._scheduler.apply(event, now)
        self._latencies.append(self._clock() - began)
        for instruction in instructions:
            if isinstance(instruction, Grant):
                # A grant can still name a job with an end that waits for the next round (`interval`).
                if not self._jobs[instruction.job].gone:
                    self._jobs[instruction.job].occupied += 1
            elif isinstance(instruction, Revoke):
                self._push(now + self._settings.grace, _RELEASE, instruction.job, instruction.slot)
            else:
                self._push(now, _GIVEN_UP, instruction.job)
            self._touched[instruction.job] = None

    def _resize(self, now: float) -> None:
        """Give every job with a change of its slots at this instant its new speed, once."""
        # Once per instant, after all its events: a job that loses a slot and gets another pauses once, not twice.
        touched, self._touched = self._touched, {}
        for name in touched:
            each = self._jobs[name]
            if not each.gone and each.occupied != each.size:
                each.resize(now, self._settings.resize_cost if each.occupied else 0.0)
                self._await_end(each)
        wake = self._scheduler.next_wake(now)
        # Without other events and without a change at this instant, a wake-up could repeat for ever and nothing would
        # happen.
        if wake is not None and wake != self._wake and (self._queue or touched):
            self._wake = max(wake, now + _SHORTEST_TICK)
            self._push(self._wake, _TICK)

    def _await_end(self, each: _Running) -> None:
        if each.ends() < float("inf"):
            self._push(each.ends(), _END, each.job.name, each.version)

    def _push(self, time: float, kind: int, job: str = "", number: int = 0) -> None:
        # The running number keeps equal entries in the order of their creation, so that every run gives the same
        # result.
        heapq.heappush(self._queue, (time, kind, next(self._numbers), (job, number)))


def simulate(
    scheduler: Scheduler,
    slots: int,
    jobs: Sequence[SimulatedJob],
    settings: SimulationSettings = SimulationSettings(),  # frozen
) -> SimulatedRun:
    """Play `jobs` against `scheduler`, which has its slots already. The arguments are those of `Engine`."""
    return Engine(scheduler, slots, jobs, settings).run()
