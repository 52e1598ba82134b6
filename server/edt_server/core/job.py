"""Hold the state of a job in the core: its settings, its slots and its turns. Slots are ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from edt_sdk.schemas.job import check_max_workers, check_priority, check_units
from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.claim import Claim
from edt_server.core.events import JobArrived

_BITS = 64  # w ÷ (2k + 1) of different claims differ by more than 2^-64 as long as there are fewer than 2^30 slots


def turn(attained: int, place: int) -> int:
    """Return the sort key of turns, lower first: by what was attained, then by `place`."""
    return (attained << 48) | place


@dataclass(slots=True)
class CoreJob:
    """The state of a job.

    Attributes:
        arrival: its arrival number, unique.
        patient_since: when it began to wait for its first slot, seconds since the epoch: its arrival or resumption.
        group: its instance group, which may be missing from the present plan.
        pool: the resource group of that group now.
        rigid: slots that it can run on are never taken from it.
        held: slots it may use, oldest grant first.
        leaving: slots it has to leave, and has not left yet.
        target: slots it is entitled to.
        served: it has had a slot.
        short_since: since when it holds less than it asks for.
        attained: what its turns have added up to, see `turns.py`. `place` settles ties.
        turn_since: when its present turn began, None while it has none.
        queued: it waits for a quota of running jobs, and for no slot yet.
        size_held: why its size does not change, "" when it may, see `JobDemand`.
        budget: epochs after which its trainings hold, None for no bound.
        reached: epochs after which it holds, 0 while it does not. It is suspended then, and not by a user.
        epochs: of the training that holds.
        search: id of the search that it is a trial of, "" for none. Its jobs claim slots as one (`bundle.py`).
        apart: hosts that it may have no slots of, and `apart_why` the reason.
        barred: the slots there.
        within_reach: how many other slots its resource group has.
    """

    name: str
    arrival: int
    patient_since: float
    owner: str
    priority: int
    max_workers: int
    min_workers: int
    unit: int
    pending_timeout: float | None
    group: str
    pool: str = ""
    demand: int = 1
    suspended: bool = False
    held: list[int] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)
    target: int = 0
    served: bool = False
    given_up: bool = False
    short_since: float | None = None
    speeds: tuple[tuple[int, float], ...] = ()
    attained: int = 0
    place: int = 0
    contest: int = 0
    turn_since: float | None = None
    rigid: bool = False
    queued: bool = False
    size_held: str = ""
    budget: int | None = None
    reached: int = 0
    epochs: int = 0
    search: str = ""
    apart: list[str] = field(default_factory=list)
    apart_why: str = ""
    barred: list[int] = field(default_factory=list)
    within_reach: int = 0

    @property
    def keeps(self) -> bool:
        """True when no slot is taken from it while it can run."""
        return self.rigid or self.size_held != ""

    def holds_at(self, epoch: int) -> bool:
        """Return whether its budget ends with this epoch or an earlier one."""
        return self.budget is not None and self.budget <= epoch

    @property
    def floor(self) -> int:
        """The fewest slots it runs with."""
        return -(-self.min_workers // self.unit) * self.unit

    @property
    def asked(self) -> int:
        """The slots it could use now, a multiple of the unit. 0 while it is suspended or between trainings."""
        if self.suspended or self.demand == 0:
            return 0
        return max(self.floor, min(self.max_workers, self.demand) // self.unit * self.unit)

    @property
    def usable(self) -> int:
        """The slots it asks for now: none while it waits for a quota, and none on hosts that it may not use."""
        if self.queued:
            return 0
        within_reach = max(self.floor, self.within_reach // self.unit * self.unit)
        return min(self.asked, within_reach) if self.apart else self.asked

    @property
    def turn(self) -> int:
        """The sort key of its turn: lower runs first while there are more jobs than slots."""
        return turn(self.attained, self.place)

    @property
    def missing(self) -> int:
        """The slots it needs next, all at once: first its least size, then a unit. 0 when it holds its target."""
        held = len(self.held)
        if held >= self.target:
            return 0
        return self.floor - held if held < self.floor else self.unit - held % self.unit

    def claim(self, group: InstanceGroup) -> Claim:
        """Return its claim under that group of the present plan."""
        asked = self.usable
        return Claim(
            job=self.name,
            group=group.name,
            user=self.owner,
            weight=self.priority,
            order=self.arrival,
            turn=self.turn,
            floor=self.floor,
            cap=asked,
            unit=self.unit,
            # Kept slots come before all turns (decision 013): without preemption, and for a program that would have to
            # start again.
            keep=0 if group.preemption and not self.keeps else self._kept(asked),
            speeds=self.speeds if group.throughput_aware else (),
        )

    def _kept(self, asked: int) -> int:
        """Return the slots that stay its own: what it holds, if it can run on that."""
        held = len(self.held) // self.unit * self.unit
        return min(held, asked) if held >= self.floor else 0

    def urgency(self) -> tuple[bool, int, int, int]:
        """Return the sort key among jobs that wait for slots they are entitled to. The lowest is served first.

        A slot that a job needs to run at all comes before a slot that makes another job faster. Then the stronger claim
        wins.
        """
        held = len(self.held)
        if held < self.floor:
            return False, held, 0, self.arrival
        return True, -((self.priority << _BITS) // (2 * held + 1)), -held, self.arrival


def arrived(event: JobArrived, number: int, now: float) -> CoreJob:
    """Return the job of this event, the `number`-th of all. Unprocessable when a value is out of bounds."""
    check_priority(event.priority)
    check_max_workers(event.max_workers)
    check_units(event.min_workers, event.max_workers, event.slots_per_unit)
    return CoreJob(
        name=event.job,
        arrival=number,
        patient_since=now,
        owner=event.owner,
        priority=event.priority,
        max_workers=event.max_workers,
        min_workers=event.min_workers,
        unit=event.slots_per_unit,
        pending_timeout=event.pending_timeout,
        group=event.instance_group,
        demand=event.demand,
        rigid=event.rigid,
        search=event.search,
    )


_FIELDS = tuple(each.name for each in fields(CoreJob))


def row_of(job: CoreJob) -> list[Any]:
    """Return the state of the job as JSON."""
    return [getattr(job, name) for name in _FIELDS]


def job_of(row: Sequence[Any]) -> CoreJob:
    """Return the job of this `row_of`, also after a round trip through JSON."""
    job = CoreJob(**dict(zip(_FIELDS, row, strict=False)))  # the last fields are newer, with defaults
    job.held, job.leaving = list(job.held), list(job.leaving)
    job.speeds = tuple((slots, speed) for slots, speed in job.speeds)
    return job
