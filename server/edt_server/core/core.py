"""The state machine that decides which job holds which slot.

It owns the slots, the jobs' claims and who holds what; it never reads a clock, does I/O or starts anything. After
every event it works out what each job is entitled to (`webster.divide`) and emits only the difference to what they
hold: it is level-triggered, so an entitlement that cannot be met yet is met when the slots come back. Invariant: a
slot has at most one job, holding or leaving it, and no job holds more than it is entitled to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from edt_sdk.schemas.control import Slot
from edt_sdk.schemas.errors import Conflict, NotFound, Unprocessable
from edt_sdk.schemas.job import Reason, check_max_workers, check_priority
from edt_server.core.events import (
    CoreEvent,
    JobArrived,
    JobChanged,
    JobDemand,
    JobGone,
    JobResumed,
    JobSuspended,
    PlanChanged,
    SlotReleased,
    SlotsChanged,
    SpeedMeasured,
    TimePassed,
)
from edt_server.core.groups import InstanceGroup
from edt_server.core.instructions import Grant, Instruction, Revoke
from edt_server.core.reason import Standing, explain
from edt_server.core.webster import Claim, divide, precision, rank

FLOOR = 1  # every job that runs keeps one slot: nobody is starved by a heavy neighbour


@dataclass(slots=True)
class _Job:
    name: str
    arrival: int
    priority: int
    max_workers: int
    group: str
    demand: int = 1
    suspended: bool = False
    held: list[int] = field(default_factory=list)  # oldest grant first
    leaving: list[int] = field(default_factory=list)
    short_since: float | None = None

    @property
    def asked(self) -> int:
        return 0 if self.suspended else min(self.max_workers, self.demand)

    @property
    def claim(self) -> Claim:
        return Claim(weight=self.priority, floor=FLOOR, cap=self.asked, order=self.arrival)


class Core:
    """One resource group divided among jobs.

    Args:
        groups: instance groups that jobs may be in.

    Raises:
        Unprocessable: two groups of one name.
    """

    def __init__(self, groups: Sequence[InstanceGroup] = (InstanceGroup("default"),)) -> None:
        self._groups = {group.name: group for group in groups}
        if len(self._groups) != len(groups):
            raise Unprocessable("Two instance groups have the same name.", hint="Give each its own.", field="name")
        self._slots: dict[int, Slot] = {}
        self._jobs: dict[str, _Job] = {}  # in order of arrival
        self._targets: dict[str, int] = {}
        self._arrivals = 0

    # --- changing it --------------------------------------------------------------------------------------------------

    def apply(self, event: CoreEvent, now: float) -> list[Instruction]:
        """Take an event in and return what must happen, revocations before grants.

        `now` is the event's time in seconds, kept to tell since when a job is short; it decides nothing. An event that
        is refused leaves the core as it was.

        Raises:
            NotFound: no such job.
            Conflict: the job is there already, or does not have the slot it releases.
            Unprocessable: no such instance group, or a value out of bounds.
        """
        if isinstance(event, JobArrived | JobChanged) and event.instance_group is not None:
            self.check_group(event.instance_group)
        return self._step(event, now)

    @classmethod
    def replay(
        cls,
        events: Iterable[tuple[CoreEvent, float]],
        groups: Sequence[InstanceGroup] = (InstanceGroup("default"),),
    ) -> Core:
        """The core that has seen these events. Equal events give an equal digest.

        Groups that were configured when a job arrived and are not any more do not stop it: that would keep a server
        from starting over a job that ended long ago.
        """
        core = cls(groups)
        for event, now in events:
            core._step(event, now)
        return core

    def _step(self, event: CoreEvent, now: float) -> list[Instruction]:
        lost: list[tuple[_Job, int]] = []
        match event:
            case SlotsChanged(slots=slots):
                lost = self._set_slots(slots)
            case JobArrived():
                self._arrive(event)
            case JobDemand(job=name, demand=demand):
                job = self._job(name)
                if demand < 0:
                    raise Unprocessable(f"A job cannot ask for {demand} slots.", job=name)
                job.demand = demand
            case JobChanged():
                self._change(event)
            case JobSuspended(job=name):
                self._job(name).suspended = True
            case JobResumed(job=name):
                self._job(name).suspended = False
            case JobGone(job=name):
                self._job(name)
                del self._jobs[name]
            case SlotReleased(job=name, slot=slot):
                self._release(self._job(name), slot)
            case PlanChanged() | TimePassed() | SpeedMeasured():
                pass
        return self._settle(lost, now)

    def _set_slots(self, slots: Sequence[Slot]) -> list[tuple[_Job, int]]:
        """Replace the slots; return what jobs held of those that are gone, which they are leaving now."""
        by_id = {slot.id: slot for slot in sorted(slots)}
        if len(by_id) != len(slots):
            raise Unprocessable("Two slots have the same id.", field="slots")
        # A slot that is another device now is another slot: the worker in the old one has to leave.
        kept = {slot for slot in self._slots.values() if by_id.get(slot.id) == slot}
        kept_ids = {slot.id for slot in kept}
        lost = [(job, slot) for job in self._jobs.values() for slot in job.held if slot not in kept_ids]
        for job, slot in lost:
            job.held.remove(slot)
            job.leaving.append(slot)
        self._slots = by_id
        return lost

    def _arrive(self, event: JobArrived) -> None:
        if event.job in self._jobs:
            raise Conflict(f"Job {event.job} has arrived before.", job=event.job)
        check_priority(event.priority)
        check_max_workers(event.max_workers)
        self._arrivals += 1
        self._jobs[event.job] = _Job(event.job, self._arrivals, event.priority, event.max_workers, event.instance_group)

    def _change(self, event: JobChanged) -> None:
        job = self._job(event.job)
        priority = job.priority if event.priority is None else check_priority(event.priority)
        job.max_workers = job.max_workers if event.max_workers is None else check_max_workers(event.max_workers)
        job.priority = priority
        job.group = job.group if event.instance_group is None else event.instance_group

    def _release(self, job: _Job, slot: int) -> None:
        if slot in job.leaving:
            job.leaving.remove(slot)
        elif slot in job.held:
            job.held.remove(slot)
        else:
            raise Conflict(f"Job {job.name} does not have slot {slot}.", job=job.name, slot=slot)

    def _settle(self, lost: Sequence[tuple[_Job, int]], now: float) -> list[Instruction]:
        """Move what the jobs hold as near to what they are entitled to as the free slots allow."""
        self._targets = self._entitlements()
        instructions: list[Instruction] = [Revoke(job.name, slot, self._targets[job.name]) for job, slot in lost]
        for job in self._jobs.values():
            target = self._targets[job.name]
            revoked = job.held[target:][::-1]  # the newest grants go first
            job.leaving += revoked
            del job.held[target:]
            instructions += [Revoke(job.name, slot, target) for slot in revoked]
        instructions += self._grants()
        for job in self._jobs.values():
            if len(job.held) >= job.asked:
                job.short_since = None
            elif job.short_since is None:
                job.short_since = now
        return instructions

    def _entitlements(self) -> dict[str, int]:
        """The slots of each job under the rule, whatever they hold; only who may run at all depends on that."""
        claimants = [job for job in self._jobs.values() if job.asked > 0]
        if len(claimants) > len(self._slots):
            # Nobody is suspended for another's sake: who runs stays, the others follow as they came. Who was let in and
            # waits for its slot to be left stays too, or an older job that comes back could take it away again.
            def turn(job: _Job) -> tuple[bool, bool, int]:
                return not job.held, not self._targets.get(job.name), job.arrival

            claimants = sorted(claimants, key=turn)[: len(self._slots)]
        shares = divide(len(self._slots), [job.claim for job in claimants])
        given = {job.name: share for job, share in zip(claimants, shares, strict=True)}
        return {name: given.get(name, 0) for name in self._jobs}

    def _grants(self) -> list[Instruction]:
        """Free slots, lowest id first, to the strongest claims not met yet."""
        bits = precision(len(self._slots))
        unmet = sorted(
            (rank(job.claim, held, bits), job.name)
            for job in self._jobs.values()
            for held in range(len(job.held), self._targets[job.name])
        )
        grants: list[Instruction] = []
        for slot, (_, name) in zip(self.free(), unmet, strict=False):
            job = self._jobs[name]
            job.held.append(slot)
            grants.append(Grant(name, slot, len(job.held)))
        return grants

    # --- reading it ---------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[InstanceGroup, ...]:
        """The configured instance groups."""
        return tuple(self._groups.values())

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots, by id."""
        return tuple(self._slots.values())

    @property
    def jobs(self) -> tuple[str, ...]:
        """All jobs that have not gone, in order of arrival."""
        return tuple(self._jobs)

    def free(self) -> tuple[int, ...]:
        """Ids of the slots nobody holds or is leaving, ascending."""
        taken = {slot for job in self._jobs.values() for slot in (*job.held, *job.leaving)}
        return tuple(slot for slot in self._slots if slot not in taken)

    def holder(self, slot: int) -> str | None:
        """The job whose worker is in this slot, leaving or not; None when the slot is free or does not exist."""
        for job in self._jobs.values():
            if slot in job.held or slot in job.leaving:
                return job.name
        return None

    def holding(self, job: str) -> tuple[int, ...]:
        """Slots the job holds and may keep, in the order they were granted."""
        return tuple(self._job(job).held)

    def leaving(self, job: str) -> tuple[int, ...]:
        """Slots revoked from the job and not released by it yet."""
        return tuple(self._job(job).leaving)

    def entitled(self, job: str) -> int:
        """Slots the job should hold now under the rule."""
        self._job(job)
        return self._targets[job]

    def asked(self, job: str) -> int:
        """Slots the job could use now: min(max_workers, demand), 0 while it is suspended."""
        return self._job(job).asked

    def suspended(self, job: str) -> bool:
        """True from the job's JobSuspended to its JobResumed, also while it still leaves slots."""
        return self._job(job).suspended

    def settled(self) -> bool:
        """True when no slot is on its way: every job holds exactly what it is entitled to."""
        return not any(job.leaving or len(job.held) < self._targets[job.name] for job in self._jobs.values())

    def reason(self, job: str, names: Callable[[str], str] = str) -> Reason | None:
        """Why the job holds less than it asked for, None when it does not. `names`: id → what people call it."""
        self._job(job)
        standings = [
            Standing(
                job=each.name,
                priority=each.priority,
                asked=each.asked,
                held=len(each.held),
                leaving=len(each.leaving),
                entitled=self._targets[each.name],
                arrival=each.arrival,
                short_since=each.short_since,
                suspended=each.suspended,
            )
            for each in self._jobs.values()
        ]
        return explain(job, standings, len(self._slots), names)

    def check_group(self, name: str) -> InstanceGroup:
        """The instance group of this name, or Unprocessable with the names there are."""
        if name not in self._groups:
            raise Unprocessable(
                f"There is no instance group {name!r}.",
                hint=f"Choose one of: {', '.join(self._groups)}.",
                field="instance_group",
            )
        return self._groups[name]

    def digest(self) -> str:
        """SHA-256 (hex) of the whole state; equal states, and only they, have equal digests."""
        state = {
            "groups": [[group.name, group.policy, group.preemption] for group in self._groups.values()],
            "slots": [[slot.id, slot.host, slot.device] for slot in self._slots.values()],
            "arrivals": self._arrivals,
            "jobs": [
                [
                    *(job.name, job.arrival, job.priority, job.max_workers, job.group, job.demand),
                    *(job.suspended, job.held, job.leaving, job.short_since, self._targets[job.name]),
                ]
                for job in self._jobs.values()
            ],
        }
        return hashlib.sha256(json.dumps(state, separators=(",", ":")).encode()).hexdigest()

    def check(self) -> None:
        """Assert the invariants. For tests: O(jobs + slots)."""
        taken = [slot for job in self._jobs.values() for slot in (*job.held, *job.leaving)]
        assert len(taken) == len(set(taken)), f"a slot has two jobs: {sorted(taken)}"
        assert self._targets == self._entitlements(), "entitlements depend on more than the present claims"
        assert sum(self._targets.values()) <= len(self._slots), "more entitled than there is"
        for job in self._jobs.values():
            target = self._targets[job.name]
            assert len(job.held) <= target <= job.asked, f"{job.name}: {len(job.held)} held of {target} of {job.asked}"
            assert all(slot in self._slots for slot in job.held), f"{job.name} holds a slot that does not exist"
        runnable = [job for job in self._jobs.values() if job.asked > 0]
        if len(runnable) <= len(self._slots):
            assert all(self._targets[job.name] >= FLOOR for job in runnable), "a job is starved"
        short = sum(self._targets[job.name] - len(job.held) for job in self._jobs.values())
        assert not (short and self.free()), "a free slot was not granted"

    def _job(self, name: str) -> _Job:
        try:
            return self._jobs[name]
        except KeyError:
            raise NotFound(
                f"The scheduler knows no job {name}.", hint="It has ended or never arrived.", job=name
            ) from None
