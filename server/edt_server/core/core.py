"""The state machine that decides which job holds which slot.

It owns the plan, the slots, the jobs' claims and who holds what; it never reads a clock, does I/O or starts anything.
After every event the rule says whose entitlement changed (`rule.py`), and only the difference to what these hold is
told: it is level-triggered, so an entitlement that cannot be met yet is met when the slots come back. An event costs
what it changes, not what there is. Invariant: a slot has at most one job, holding or leaving it, and no job holds more
than it is entitled to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from edt_sdk.schemas.errors import Conflict, Unprocessable
from edt_sdk.schemas.job import check_max_workers, check_priority, check_units
from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import Slot
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
from edt_server.core.instructions import Instruction, Revoke
from edt_server.core.job import Job, arrived
from edt_server.core.pool import Pool
from edt_server.core.state import FIELDS
from edt_server.core.timing import TimedCore
from edt_server.core.turns import Party, Turns

Lost = list[tuple[Job, int]]


class Core(TimedCore):
    """The slots of all resource groups, divided among the jobs.

    Args:
        plan: how, until a PlanChanged says otherwise.

    Raises:
        Unprocessable: the plan cannot be used.
    """

    def __init__(self, plan: Plan | None = None) -> None:
        super().__init__()
        self._left: list[Party] = []  # by jobs, in the event under way
        self._use((plan or Plan()).check())

    # --- changing it --------------------------------------------------------------------------------------------------

    def apply(self, event: CoreEvent, now: float) -> list[Instruction]:
        """Take an event in and return what must happen, revocations before grants.

        `now` is the event's time in seconds. It tells since when a job is short; it decides nothing, but in a
        TimePassed, which ends turns and the patience of jobs. An event that is refused leaves the core as it was.

        Raises:
            NotFound: no such job.
            Conflict: the job is there already, or does not have the slot it releases.
            Unprocessable: no such instance group, a value out of bounds, a plan that contradicts itself or that has no
                place for a job that is there.
        """
        if isinstance(event, JobArrived | JobChanged) and event.instance_group is not None:
            self.check_group(event.instance_group)
        if isinstance(event, PlanChanged):
            self.check_plan(event.plan)
        return self._step(event, now)

    @classmethod
    def replay(cls, events: Iterable[tuple[CoreEvent, float]], plan: Plan | None = None) -> Core:
        """The core that has seen these events, the first of them under `plan`. Equal events give an equal digest.

        Groups that were configured when a job arrived and are not any more do not stop it: that would keep a server
        from starting over a job that ended long ago.
        """
        core = cls(plan)
        core.follow(events)
        return core

    def follow(self, events: Iterable[tuple[CoreEvent, float]]) -> None:
        """Take in what another core has taken in from where this one is; decisions are known already."""
        for event, now in events:
            self._step(event, now)

    def _step(self, event: CoreEvent, now: float) -> list[Instruction]:
        lost: Lost = []
        given_up: list[Instruction] = []
        self._touched, self._left = {}, []
        self._standings.clear()
        match event:
            case SlotsChanged(slots=slots):
                lost = self._set_slots(slots)
            case PlanChanged(plan=plan):
                lost = self._use(plan)
            case TimePassed():
                given_up = self._pass_time(now)
            case JobArrived():
                self._arrive(event, now)
            case JobDemand(job=name, demand=demand):
                job = self._job(name)
                if demand < 0:
                    raise Unprocessable(f"A job cannot ask for {demand} slots.", job=name)
                job.demand = demand
                self._put(job)
            case JobChanged():
                lost = self._change(event)
            case JobSuspended(job=name):
                job = self._job(name)
                job.suspended = True
                self._put(job)
            case JobResumed(job=name):
                job = self._job(name)
                if job.suspended:
                    job.suspended, job.patient_since = False, now
                    self._patience.watch(job.name)
                self._put(job)
            case JobGone(job=name):
                self._go(self._job(name))
            case SlotReleased(job=name, slot=slot):
                self._release(self._job(name), slot)
            case SpeedMeasured(job=name, speeds=speeds):
                job = self._job(name)
                if any(slots < 1 or not speed > 0 for slots, speed in speeds.items()):
                    raise Unprocessable(f"{speeds} is no table of speeds by slots.", job=name, field="speeds")
                job.speeds = tuple(sorted(speeds.items()))
                self._put(job)
        return [*given_up, *self._settle(lost, now)]

    def _set_slots(self, slots: Sequence[Slot]) -> Lost:
        """Replace the slots; return what jobs held of those that are gone, which they are leaving now."""
        by_id = {slot.id: slot for slot in sorted(slots)}
        if len(by_id) != len(slots):
            raise Unprocessable("Two slots have the same id.", field="slots")
        # A slot that is another device now is another slot: the worker in the old one has to leave.
        kept = {slot.id for slot in self._slots.values() if by_id.get(slot.id) == slot}
        self._slots = by_id
        self._spread_slots()
        return self._expel(lambda job, slot: slot in kept and self._belongs(job, slot))

    def _spread_slots(self) -> None:
        """Give each resource group its slots: those of the hosts it names, or of those nobody names."""
        by_host = {host: group.name for group in self._plan.resource_groups for host in group.hosts}
        rest = next((group.name for group in self._plan.resource_groups if not group.hosts), None)
        parts: dict[str, set[int]] = {name: set() for name in self._pools}
        for slot in self._slots.values():
            name = by_host.get(slot.host, rest)
            if name is not None:
                parts[name].add(slot.id)
        self._pool_of = {slot: self._pools[name] for name, ids in parts.items() for slot in ids}
        for name, ids in parts.items():
            self._pools[name].set_slots(ids, self._taken)

    def _expel(self, may_stay: Callable[[Job, int], bool]) -> Lost:
        """Make jobs leave slots they may not stay in."""
        lost = [(job, slot) for job in self._jobs.values() for slot in job.held if not may_stay(job, slot)]
        self._leave(lost)
        return lost

    def _leave(self, lost: Lost) -> None:
        for job, slot in lost:
            job.held.remove(slot)
            job.leaving.append(slot)
            self._put(job)

    def _use(self, plan: Plan) -> Lost:
        """Divide by this plan from now on; return the slots that jobs may not use any more."""
        self._plan = plan
        self._leaves = {group.name: group for group in plan.leaves()}
        old = self._pools
        groups = plan.instance_groups
        self._pools = {
            each.name: Pool(
                each.name,
                [group for group in groups if group.resource_group == each.name],
                old[each.name].turns if each.name in old else None,
            )
            for each in plan.resource_groups
        }
        self._spread_slots()
        for job in self._jobs.values():
            job.target = 0  # the new rules know of none
            if job.pool != self._group(job).resource_group:
                self._enter(job, old.get(job.pool))
            else:
                self._pools[job.pool].turns.renew(job, self._group(job))
            self._put(job)
            self._patience.watch(job.name)
        for pool in self._pools.values():
            for party in pool.turns.parties():
                pool.turns.renew(party, self._leaves[party.group])
                pool.rule.line_up(party.group, party.user, party.turn)
        return self._expel(self._belongs)

    def _arrive(self, event: JobArrived, now: float) -> None:
        if event.job in self._jobs:
            raise Conflict(f"Job {event.job} has arrived before.", job=event.job)
        job = arrived(event, self._arrivals + 1, now)
        self._arrivals += 1
        self._jobs[job.name] = job
        self._enter(job, None)
        self._put(job)
        self._patience.watch(job.name)

    def _enter(self, job: Job, old: Pool | None) -> None:
        """Put the job in line in the resource group that its instance group is over."""
        if old is not None:
            old.rule.remove(job.name)
            self._forget(job, old)
        job.pool = self._group(job).resource_group
        job.attained = job.target = 0

    def _change(self, event: JobChanged) -> Lost:
        job = self._job(event.job)
        priority = job.priority if event.priority is None else check_priority(event.priority)
        if event.max_workers is not None:
            check_max_workers(event.max_workers)
            check_units(job.min_workers, event.max_workers, job.unit)
            job.max_workers = event.max_workers
        job.priority = priority
        lost: Lost = []
        if event.instance_group is not None and event.instance_group != job.group:
            job.group = event.instance_group
            if self._group(job).resource_group != job.pool:
                self._enter(job, self._pools[job.pool])
                lost = [(job, slot) for slot in job.held]
                self._leave(lost)
            else:
                self._pools[job.pool].turns.renew(job, self._group(job))
            self._patience.watch(job.name)
        self._put(job)
        return lost

    def _go(self, job: Job) -> None:
        del self._jobs[job.name]
        pool = self._pools[job.pool]
        pool.rule.remove(job.name)
        self._forget(job, pool)
        for slot in (*job.held, *job.leaving):
            self._free(slot)

    def _release(self, job: Job, slot: int) -> None:
        if slot in job.leaving:
            job.leaving.remove(slot)
        elif slot in job.held:
            job.held.remove(slot)
            self._put(job)
        else:
            raise Conflict(f"Job {job.name} does not have slot {slot}.", job=job.name, slot=slot)
        self._free(slot)

    def _free(self, slot: int) -> None:
        del self._taken[slot]
        pool = self._pool_of.get(slot)
        if pool is not None:
            pool.free(slot)

    def _put(self, job: Job) -> None:
        """Tell the rule what the job asks for now."""
        pool, group = self._pools[job.pool], self._group(job)
        before = pool.turns.party(job.name)
        party = pool.turns.ask(job, group)
        if before is not None and before is not party:
            self._leave_party(job, before, pool)
        if party is not None:
            pool.rule.line_up(party.group, party.user, party.turn)
        pool.rule.put(job.claim(group))
        self._touched[job.name] = job

    def _forget(self, job: Job, pool: Pool) -> None:
        """The job asks for nothing in this pool any more."""
        party = pool.turns.forget(job)
        if party is not None:
            self._leave_party(job, party, pool)

    def _leave_party(self, job: Job, party: Party, pool: Pool) -> None:
        self._left.append(party)
        group = self._leaves.get(party.group)
        if party.jobs and job.held and group is not None and not group.preemption:
            pool.turns.over(party, group)  # it has no other end: else who waits would wait for the whole queue
            pool.rule.line_up(party.group, party.user, party.turn)

    # --- deciding -----------------------------------------------------------------------------------------------------

    def _settle(self, lost: Lost, now: float) -> list[Instruction]:
        """Move what the jobs hold as near to what they are entitled to as the free slots allow."""
        for pool in self._pools.values():
            for name, target in pool.rule.settle().items():
                job = self._jobs[name]
                job.target = target
                self._touched[name] = job
        touched = sorted(self._touched.values(), key=lambda job: job.arrival)
        touched = [job for job in touched if job.name in self._jobs]
        self._place(touched)
        instructions: list[Instruction] = [Revoke(job.name, slot, job.target) for job, slot in lost]
        for job in touched:
            revoked = job.held[job.target :][::-1]  # the newest grants go first
            job.leaving += revoked
            del job.held[job.target :]
            instructions += [Revoke(job.name, slot, job.target) for slot in revoked]
            self._pools[job.pool].owe(job)
        for pool in self._pools.values():
            for grant in pool.grants(self._jobs):
                instructions.append(grant)
                self._taken[grant.slot] = grant.job
                self._touched[grant.job] = self._jobs[grant.job]
        for job in self._touched.values():
            if job.name in self._jobs:
                self._look_at(job, now)
        return instructions

    def _place(self, touched: list[Job]) -> None:
        """Note who runs and who waits for a turn."""
        parties = {party.name: party for party in self._left}
        for job in touched:
            turns = self._pools[job.pool].turns
            party = turns.party(job.name)
            if party is None:
                turns.placed(job)
            else:
                parties[party.name] = party
        for party in parties.values():
            if party.jobs:
                pool = self._pools[self._leaves[party.group].resource_group]
                party.target, party.floor = pool.rule.used(party.group, party.user)
                pool.turns.placed(party)

    def _look_at(self, job: Job, now: float) -> None:
        """Note what follows from what the job holds."""
        group = self._group(job)
        if job.held:
            job.served = True
        if len(job.held) >= job.asked:
            job.short_since = None
        elif job.short_since is None:
            job.short_since = now
        turns = self._pools[job.pool].turns
        turner = turns.party(job.name) or job
        if turner.turn_since is None and 0 < job.floor <= len(job.held):
            turns.begin(turner, group, now)
        if job.rigid or not group.preemption:
            self._pools[job.pool].rule.put(job.claim(group))  # what it was given it keeps

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Core:
        """The core that told this `state`, also by way of JSON."""
        core = cls(msgspec.convert(state["plan"], Plan))
        core._arrivals = state["arrivals"]
        core._slots = {number: Slot(id=number, host=host, device=device) for number, host, device in state["slots"]}
        for values in state["jobs"]:
            job = Job(**dict(zip(FIELDS, values, strict=True)))
            job.held, job.leaving = list(job.held), list(job.leaving)
            job.speeds = tuple((slots, speed) for slots, speed in job.speeds)
            core._jobs[job.name] = job
            core._taken.update(dict.fromkeys((*job.held, *job.leaving), job.name))
        core._spread_slots()
        for name, turns in state["turns"].items():
            core._pools[name].turns = Turns.restored(turns)
        for job in core._jobs.values():
            pool, group = core._pools[job.pool], core._group(job)
            pool.turns.again(job, group)
            pool.rule.put(job.claim(group))
            pool.owe(job)
            core._patience.watch(job.name)
        for pool in core._pools.values():
            for party in pool.turns.parties():
                pool.rule.line_up(party.group, party.user, party.turn)
            pool.rule.settle()  # nothing new
        return core
