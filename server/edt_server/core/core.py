"""Decide which job holds which slot. This is the core's state machine.

It owns the plan, the slots, the jobs' claims and their allocation. It never reads a clock, does I/O or starts anything.
After every event the rule reports which targets changed (`rule.py`), and the core answers with the difference to what
those jobs hold. It is level-triggered: a target that cannot be met yet is met when slots come back. The cost of an
event depends on what it changes, not on how many jobs there are.

Invariant: a slot has at most one job, which holds it or is leaving it, and no job holds more than its target.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from edt_sdk.schemas.errors import Conflict, NotFound, Unprocessable
from edt_sdk.schemas.job import Reason, check_units
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core import quota
from edt_server.core.bundle import Bundle
from edt_server.core.checks import check_places, check_size
from edt_server.core.deadlines import NEVER, Deadlines
from edt_server.core.demand import Demand, demand
from edt_server.core.events import (
    CoreEvent,
    JobApart,
    JobArrived,
    JobBudget,
    JobChanged,
    JobDemand,
    JobGone,
    JobHeld,
    JobResumed,
    JobSuspended,
    PlanChanged,
    SlotReleased,
    SlotsChanged,
    SpeedMeasured,
    TimePassed,
)
from edt_server.core.instructions import GiveUp, Instruction, Revoke
from edt_server.core.job import CoreJob, arrived, job_of, row_of
from edt_server.core.pool import Pool
from edt_server.core.reason import PoolView, explain, suspended
from edt_server.core.tree import Holding
from edt_server.core.turns import StrictQueue, Turns, TurnTaker

_NO_ENDS: Mapping[str, tuple[float, float]] = {}

Lost = list[tuple[CoreJob, int]]


class Core:
    """The slots of all resource groups, divided among the jobs by `plan` until a PlanChanged replaces it."""

    def __init__(self, plan: Plan | None = None) -> None:
        self._plan = (plan or Plan()).check()
        self._leaves: dict[str, InstanceGroup] = {}
        self._slots: dict[int, Slot] = {}
        self._jobs: dict[str, CoreJob] = {}  # in order of arrival
        self._taken: dict[int, str] = {}  # slot → the job that holds it or is leaving it
        self._pools: dict[str, Pool] = {}
        self._pool_of: dict[int, Pool] = {}  # slot → its pool
        self._arrivals = 0
        self._views: dict[str, PoolView] = {}  # a cache, valid until the next event
        self._demand: dict[str, Demand] | None = None  # likewise
        self._deadlines = Deadlines(self._deadline)
        self._bundles: dict[str, Bundle] = {}  # by the name of their claimant
        self._bundle_of: dict[str, Bundle] = {}  # job → its bundle
        self._touched: dict[str, CoreJob] = {}  # by the present event
        self._undivided: dict[str, Bundle] = {}  # bundles that the present event touched
        self._left: list[StrictQueue] = []  # queues that jobs left in the present event
        self._use(self._plan)

    # --- reading it ---------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan that divides the slots."""
        return self._plan

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots, by id."""
        return tuple(self._slots.values())

    def slot(self, slot: int) -> Slot:
        """Return the slot with this id. KeyError when there is none."""
        return self._slots[slot]

    def slots_in(self, resource_group: str) -> int:
        """Return how many slots a resource group has, 0 for one that does not exist."""
        pool = self._pools.get(resource_group)
        return 0 if pool is None else len(pool.slots)

    @property
    def jobs(self) -> tuple[str, ...]:
        """All jobs that are not gone, in order of arrival."""
        return tuple(self._jobs)

    def free(self) -> tuple[int, ...]:
        """Return the ids of the slots without a job, ascending."""
        return tuple(slot for slot in self._slots if slot not in self._taken)

    def holder(self, slot: int) -> str | None:
        """Return the job in this slot, leaving or not. None when the slot is free or does not exist."""
        return self._taken.get(slot)

    def holdings(self) -> dict[str, Holding]:
        """Return what each instance group has, owns, borrows and lends."""
        return {name: holding for pool in self._pools.values() for name, holding in pool.rule.groups().items()}

    def owner(self, job: str) -> str:
        """Return the user that submitted the job."""
        return self._job(job).owner

    def group_of(self, job: str) -> InstanceGroup:
        """Return the group with the policy that applies to the job: its own, or the plan's first when that is gone."""
        return self._group(self._job(job))

    def resource_group_of(self, slot: int) -> str | None:
        """Return the slot's resource group. None for a slot outside every group, and for a slot that does not exist."""
        pool = self._pool_of.get(slot)
        return None if pool is None else pool.name

    def holding(self, job: str) -> tuple[int, ...]:
        """Return the slots that the job holds and may keep, in the order of their grants."""
        return tuple(self._job(job).held)

    def leaving(self, job: str) -> tuple[int, ...]:
        """Return the slots that were revoked from the job and that it has not released yet."""
        return tuple(self._job(job).leaving)

    def entitled(self, job: str) -> int:
        """Return how many slots the job should hold now under the rule."""
        return self._job(job).target

    def asked(self, job: str) -> int:
        """Return how many slots the job could use: min(max_workers, demand), at least its minimum, 0 if suspended."""
        return self._job(job).asked

    def keeps(self, job: str) -> bool:
        """Return whether the job would have to restart without one of its slots, so that none is taken from it."""
        return self._job(job).keeps

    def speeds(self, job: str) -> dict[int, float]:
        """Return the job's measured speeds: slots → speed."""
        return dict(self._job(job).speeds)

    def suspended(self, job: str) -> bool:
        """Return whether the job is between JobSuspended and JobResumed, also while it still leaves slots."""
        return self._job(job).suspended

    def budget(self, job: str) -> int | None:
        """Return the epochs after which trainings of the job hold, None for no bound."""
        return self._job(job).budget

    def holds_at(self, job: str, epoch: int) -> bool:
        """Return whether a training of the job holds after so many epochs."""
        return self._job(job).holds_at(epoch)

    def held(self, job: str) -> tuple[int, int] | None:
        """Return (epochs done, all epochs) of a job that holds since it has reached its budget, None of any other."""
        me = self._job(job)
        return (me.reached, me.epochs) if me.reached else None

    def apart(self, job: str) -> tuple[str, ...]:
        """Return the hosts that the job may have no slots of."""
        return tuple(self._job(job).apart)

    def settled(self) -> bool:
        """Return whether every job holds exactly its target and leaves nothing."""
        return not any(job.leaving or len(job.held) < job.target for job in self._jobs.values())

    def reason(
        self,
        job: str,
        names: Callable[[str], str] = str,
        *,
        now: float | None = None,
        ends: Mapping[str, tuple[float, float]] | None = None,
    ) -> Reason | None:
        """Return why the job holds less than it asked for, None when it does not.

        O(jobs of its resource group) for the first call after an event, O(slots) for the others.

        Args:
            job: its id.
            names: id → the name that users know.
            now: the time that a forecast counts from. None asks for a sentence without a forecast.
            ends: job → earliest and latest end by its progress, where known. Pass the same mapping for several jobs:
                it is then sorted once.
        """
        me = self._job(job)
        if me.suspended:
            return suspended(me)
        if me.size_held and me.held:
            held = len(me.held)
            return Reason(code="restarts", text=me.size_held, held=held, entitled=me.target, asked=me.asked)
        if len(me.held) >= me.asked:
            return None
        if me.apart and len(me.held) >= min(me.usable, me.within_reach):
            return Reason(code="apart", text=me.apart_why, held=len(me.held), entitled=me.target, asked=me.asked)
        pool, group = self._pools[me.pool], self._group(me)
        if me.queued:
            return quota.reason(me, self._jobs_of(group), group, names)
        view = self._views.get(pool.name)
        if view is None:
            here = self._claimants(each for each in self._jobs.values() if each.pool == pool.name)
            view = self._views[pool.name] = PoolView(pool, map(self._seen, here))
        claimant = self._seen(self._claimant(me))
        at = view.situation(claimant, group, now, _NO_ENDS if ends is None else ends)
        found = explain(at, lambda name: names(self._id(name)))
        if found is not None and self._bundles:
            found = msgspec.structs.replace(found, numbers=self._with_ids(found.numbers))
        bundle = self._bundle_of.get(job)
        return found if bundle is None else bundle.reason(me, found)

    def _seen(self, claimant: CoreJob) -> CoreJob:
        """Return the claimant as it is shown, with what the jobs of a bundle hold at this moment."""
        bundle = self._bundles.get(claimant.name)
        return claimant if bundle is None else bundle.seen()

    def _id(self, claimant: str) -> str:
        """Return the id that users know: of the job, or of the search."""
        bundle = self._bundles.get(claimant)
        return claimant if bundle is None else bundle.search

    def _with_ids(self, value: Any) -> Any:
        """Return the numbers of a reason with the ids that users know."""
        match value:
            case str():
                return self._id(value)
            case list():
                return [self._with_ids(each) for each in value]
            case dict():
                return {self._id(key): self._with_ids(each) for key, each in value.items()}
            case _:
                return value

    def fits(self, instance_group: str, min_workers: int = 1, slots_per_unit: int = 1) -> None:
        """Raise Unprocessable unless a job of this least size could ever run in that group, see `check_size`."""
        group = self._plan.group(instance_group)
        pool = self._pools[group.resource_group]
        needed = -(-min_workers // slots_per_unit) * slots_per_unit
        check_size(needed, pool.rule.most(group.name), len(pool.slots), group)

    def usage(self, instance_group: str) -> dict[str, quota.Usage]:
        """Return what each user's jobs use in that group. O(jobs)."""
        return quota.usage(self._jobs_of(self._plan.group(instance_group)))

    def demand(self) -> Mapping[str, Demand]:
        """Return how many more slots the jobs of each resource group would take at once, by the group's name.

        A job counts with min(max_workers, demand), as far as the plan and its quotas would ever let it have that many
        slots. A job that is suspended, holds at its budget or waits for a quota of running jobs counts with none.
        O(n log n) for n jobs for the first call after an event, O(1) for the others.
        """
        if self._demand is None:
            self._demand = {name: demand(pool) for name, pool in self._pools.items()}
        return MappingProxyType(self._demand)

    def next_wake(self, now: float) -> float | None:
        """Return when to apply the next TimePassed, in seconds, never before `now`. None when nothing waits for time.

        The core reads no clock: turns and deadlines end only in a TimePassed.
        """
        wake = min(self._deadlines.next(), *(pool.turns.next_end() for pool in self._pools.values()))
        return None if wake == NEVER else max(wake, now)

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the whole state, equal for equal states only."""
        return hashlib.sha256(json.dumps(self.state(), separators=(",", ":")).encode()).hexdigest()

    def state(self) -> dict[str, Any]:
        """Return the whole state as JSON, for `restored`."""
        return {
            "plan": msgspec.to_builtins(self._plan),
            "slots": [[slot.id, slot.host, slot.device] for slot in self._slots.values()],
            "arrivals": self._arrivals,
            "jobs": [row_of(job) for job in self._jobs.values()],
            "bundles": [bundle.row() for bundle in self._bundles.values()],
            "turns": {pool.name: pool.turns.state() for pool in self._pools.values()},
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Core:
        """Return the core that returned this `state`, also after a round trip through JSON."""
        core = cls(msgspec.convert(state["plan"], Plan))
        core._arrivals = state["arrivals"]
        core._slots = {number: Slot(id=number, host=host, device=device) for number, host, device in state["slots"]}
        for values in state["jobs"]:
            job = core._jobs[values[0]] = job_of(values)
            core._taken.update(dict.fromkeys((*job.held, *job.leaving), job.name))
        core._spread_slots()
        for name, turns in state["turns"].items():
            core._pools[name].turns = Turns.restored(turns)
        for row in state.get("bundles", ()):
            bundle = Bundle.restored(row)
            core._bundles[bundle.claimant.name] = bundle
        for job in core._jobs.values():
            if job.search:
                core._join(job)
            core._pools[job.pool].owe(job)
            core._deadlines.watch(job.name)
        for claimant in core._claimants(core._jobs.values()):
            pool, group = core._pools[claimant.pool], core._group(claimant)
            pool.turns.rejoin(claimant, group)
            pool.rule.put(claimant.claim(group))
        for pool in core._pools.values():
            for queue in pool.turns.queues():
                pool.rule.set_turn(queue.group, queue.user, queue.turn)
            # The targets were stored with the jobs. Settling only makes the rule's own state agree with them.
            pool.rule.settle()
        return core

    # --- changing it --------------------------------------------------------------------------------------------------

    def apply(self, event: CoreEvent, now: float) -> list[Instruction]:
        """Take an event in and return what must happen, revocations before grants.

        `now` is the event's time in seconds. It records since when a job holds too little. It decides nothing, except
        in a TimePassed, which ends turns and deadlines. An event that is refused leaves the core as it was.

        Raises:
            NotFound: no such job.
            Conflict: the job is there already, or does not have the slot it releases.
            Unprocessable: no such instance group, a value out of bounds, a plan that contradicts itself or leaves a
                job without a group.
        """
        if isinstance(event, JobArrived):
            self._plan.group(event.instance_group)
        if isinstance(event, JobChanged) and event.patch.instance_group is not None:
            self._plan.group(event.patch.instance_group)
        if isinstance(event, PlanChanged):
            check_places(event.plan.check(), self._jobs.values(), self._leaves)
        return self._step(event, now)

    def follow(self, events: Iterable[tuple[CoreEvent, float]]) -> None:
        """Apply events that another core in the same state has accepted. Their instructions are already known.

        Equal events give an equal digest. An event may name a group that has since been removed: refusing it would
        keep a server from starting because of a job that ended long ago.
        """
        for event, now in events:
            self._step(event, now)

    def _step(self, event: CoreEvent, now: float) -> list[Instruction]:
        lost: Lost = []
        given_up: list[Instruction] = []
        self._touched, self._undivided, self._left = {}, {}, []
        self._views.clear()
        self._demand = None
        match event:
            case SlotsChanged(slots=slots):
                lost = self._set_slots(slots)
            case PlanChanged(plan=plan):
                lost = self._use(plan)
            case TimePassed():
                given_up = self._pass_time(now)
            case JobArrived():
                self._arrive(event, now)
            case JobDemand(job=name, demand=demand, held=held):
                job = self._job(name)
                if demand < 0:
                    raise Unprocessable(f"A job cannot ask for {demand} slots.", job=name)
                job.demand, job.size_held = demand, held
                self._put(job)
            case JobChanged():
                lost = self._change_settings(event)
            case JobSuspended(job=name):
                job = self._job(name)
                # A user's suspension takes the place of a hold: from then on more budget alone does not resume it.
                job.suspended, job.reached = True, 0
                self._put(job)
            case JobResumed(job=name):
                self._resume(self._job(name), now)
            case JobBudget(job=name, budget=budget):
                job = self._job(name)
                if budget is not None and budget < 1:
                    raise Unprocessable(f"A budget is at least one epoch, not {budget}.", job=name, field="budget")
                job.budget = budget
                if job.reached and not job.holds_at(job.reached):
                    self._resume(job, now)
            case JobHeld(job=name, epoch=epoch, epochs=epochs):
                job = self._job(name)
                # Its supervisor may have sent this before it heard of more budget.
                if job.holds_at(epoch) and not job.suspended:
                    job.suspended, job.reached, job.epochs = True, epoch, epochs
                    self._put(job)
            case JobApart(job=name, hosts=hosts, why=why):
                job = self._job(name)
                job.apart, job.apart_why = list(hosts), why
                self._put(job)
                lost = [(job, slot) for slot in job.held if slot in job.barred]
                self._leave(lost)
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
        self._queue(isinstance(event, PlanChanged))
        return [*given_up, *self._settle(lost, now)]

    def _resume(self, job: CoreJob, now: float) -> None:
        job.reached = 0
        if job.suspended:
            # The timeout starts again: a job that was suspended was not waiting for a slot.
            job.suspended, job.patient_since = False, now
            self._deadlines.watch(job.name)
        self._put(job)

    def _queue(self, changed: bool) -> None:
        """Choose the jobs that wait for quotas of running jobs. `changed`: the plan was, and may have lost some."""
        for group in self._leaves.values():
            # Without such a quota no job waits for one, and events cost nothing here.
            if changed or group.limits_running:
                waiting = quota.over_quota(self._jobs_of(group), group)
                for job in self._jobs_of(group):
                    # A suspended job gives up its place, and queues for one when it is resumed.
                    if job.queued != (group.limits_running if job.suspended else job.name in waiting):
                        job.queued = not job.queued
                        self._put(job)

    def _jobs_of(self, group: InstanceGroup) -> Iterable[CoreJob]:
        return (job for job in self._jobs.values() if self._group(job) is group)

    def _set_slots(self, slots: Sequence[Slot]) -> Lost:
        """Replace the slots and return those that jobs held and now have to leave."""
        by_id = {slot.id: slot for slot in sorted(slots)}
        if len(by_id) != len(slots):
            raise Unprocessable("Two slots have the same id.", field="slots")
        # A slot with another device is another slot: the worker in the old one has to leave.
        kept = {slot.id for slot in self._slots.values() if by_id.get(slot.id) == slot}
        self._slots = by_id
        self._spread_slots()
        for job in self._jobs.values():
            if job.apart:
                self._put(job)
        return self._expel(lambda job, slot: slot in kept and self._belongs(job, slot))

    def _spread_slots(self) -> None:
        """Give each resource group the slots of its hosts. One without hosts takes the hosts that no group names."""
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

    def _expel(self, may_stay: Callable[[CoreJob, int], bool]) -> Lost:
        """Make jobs leave the slots they may not stay in."""
        lost = [(job, slot) for job in self._jobs.values() for slot in job.held if not may_stay(job, slot)]
        self._leave(lost)
        return lost

    def _leave(self, lost: Lost) -> None:
        for job, slot in lost:
            job.held.remove(slot)
            job.leaving.append(slot)
            self._put(job)

    def _use(self, plan: Plan) -> Lost:
        """Divide by this plan from now on and return the slots that jobs may not use any more."""
        self._plan = plan
        self._leaves = {group.name: group for group in plan.leaves()}
        old = self._pools
        groups = plan.instance_groups
        self._pools = {
            each.name: Pool(
                each.name,
                [group for group in groups if group.resource_group == each.name],
                # Turns outlive the plan, or every change of a group would make all waiting jobs equal.
                old[each.name].turns if each.name in old else None,
            )
            for each in plan.resource_groups
        }
        self._spread_slots()
        for bundle in list(self._bundles.values()):
            claimant, group = bundle.claimant, self._leaves.get(bundle.claimant.group)
            claimant.target = 0
            if group is None or group.resource_group != claimant.pool:
                # The old rules are gone, but the turns stay.
                self._forget(claimant, old[claimant.pool])
                del self._bundles[claimant.name]
                for name in bundle.jobs:
                    del self._bundle_of[name]
            else:
                self._pools[claimant.pool].turns.renew(claimant, group)
        for job in self._jobs.values():
            job.target = 0  # the new rules start without targets
            if job.pool != self._group(job).resource_group:
                self._enter(job, old.get(job.pool))
            else:
                self._pools[job.pool].turns.renew(job, self._group(job))
            self._put(job)
            self._deadlines.watch(job.name)
        for pool in self._pools.values():
            for queue in pool.turns.queues():
                pool.turns.renew(queue, self._leaves[queue.group])
                pool.rule.set_turn(queue.group, queue.user, queue.turn)
        return self._expel(self._belongs)

    def _arrive(self, event: JobArrived, now: float) -> None:
        if event.job in self._jobs:
            raise Conflict(f"Job {event.job} has arrived before.", job=event.job)
        job = arrived(event, self._arrivals + 1, now)
        job.queued = self._group(job).limits_running  # until `_queue` gives it a place
        self._arrivals += 1
        self._jobs[job.name] = job
        self._enter(job, None)
        self._put(job)
        self._deadlines.watch(job.name)

    def _enter(self, job: CoreJob, old: Pool | None) -> None:
        """Move the job into the resource group of its instance group."""
        if old is not None:
            self._withdraw(job, old)
        job.pool = self._group(job).resource_group
        # Another resource group has another clock of turns, so what was attained here means nothing there.
        job.attained = job.target = 0

    def _change_settings(self, event: JobChanged) -> Lost:
        job, patch = self._job(event.job), event.patch
        # The check comes before the first assignment: a refused event must leave the core as it was.
        if patch.max_workers is not None:
            check_units(job.min_workers, patch.max_workers, job.unit)
            job.max_workers = patch.max_workers
            if job.size_held:
                # On request it is resized all the same, and says again what that costs when it has started.
                job.demand = patch.max_workers
        if patch.priority is not None:
            job.priority = self._claimant(job).priority = patch.priority
        lost: Lost = []
        if patch.instance_group is not None and patch.instance_group != job.group:
            job.group = patch.instance_group
            job.queued = self._group(job).limits_running
            if self._group(job).resource_group != job.pool:
                self._enter(job, self._pools[job.pool])
                lost = [(job, slot) for slot in job.held]
                self._leave(lost)
            else:
                self._pools[job.pool].turns.renew(job, self._group(job))
            self._deadlines.watch(job.name)
        self._put(job)
        return lost

    def _go(self, job: CoreJob) -> None:
        del self._jobs[job.name]
        self._withdraw(job, self._pools[job.pool])
        # No process is left, so the slots that it was leaving are free without a SlotReleased.
        for slot in (*job.held, *job.leaving):
            self._free(slot)

    def _release(self, job: CoreJob, slot: int) -> None:
        if slot in job.leaving:
            job.leaving.remove(slot)
        elif slot in job.held:
            # Not revoked: its worker died. The target stays, so that the job gets a slot again at once.
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

    def _put(self, job: CoreJob) -> None:
        """Pass the job's present claim to the rule."""
        if job.search:
            self._join(job)
        job.barred = [slot.id for slot in self._slots.values() if slot.host in job.apart] if job.apart else []
        job.within_reach = len(self._pools[job.pool].slots.difference(job.barred)) if job.apart else 0
        self._touched[job.name] = job
        self._ask(self._claimant(job), self._pools[job.pool])

    def _ask(self, claimant: CoreJob, pool: Pool) -> None:
        """Pass the claim of a job of its own, or of a bundle, to the rule of this pool."""
        bundle = self._bundles.get(claimant.name)
        if bundle is not None:
            bundle.claim_together()
            self._undivided[claimant.name] = bundle
        group = self._group(claimant)
        before = pool.turns.queue_of(claimant.name)
        queue = pool.turns.ask(claimant, group)
        if before is not None and before is not queue:
            self._leave_queue(claimant, before, pool)
        if queue is not None:
            pool.rule.set_turn(queue.group, queue.user, queue.turn)
        pool.rule.put(claimant.claim(group))

    # --- bundles ------------------------------------------------------------------------------------------------------

    def _claimant(self, job: CoreJob) -> CoreJob:
        """Return what claims slots for the job: the job itself, or its bundle's claimant."""
        bundle = self._bundle_of.get(job.name)
        return job if bundle is None else bundle.claimant

    def _claimants(self, jobs: Iterable[CoreJob]) -> Iterable[CoreJob]:
        """Return what claims slots for these jobs, each once."""
        return {claimant.name: claimant for claimant in map(self._claimant, jobs)}.values()

    def _jobs_behind(self, claimant: str) -> Iterable[CoreJob]:
        """Return the jobs that this one claims slots for."""
        bundle = self._bundles.get(claimant)
        return (self._jobs[claimant],) if bundle is None else bundle.jobs.values()

    def _join(self, job: CoreJob) -> None:
        """Make sure that a job of a search is in the bundle of its present instance group."""
        group = self._group(job).name
        before, name = self._bundle_of.get(job.name), Bundle.name(job, group)
        if before is not None and before.claimant.name != name:
            self._withdraw(job, self._pools[before.claimant.pool])
        if name not in self._bundles:
            self._arrivals += 1
            self._bundles[name] = Bundle.of(job, group, self._arrivals)
        bundle = self._bundle_of[job.name] = self._bundles[name]
        bundle.jobs[job.name] = job

    def _withdraw(self, job: CoreJob, pool: Pool) -> None:
        """Remove the job's claim from the rule and the turns of this pool."""
        if job.search:
            bundle = self._bundle_of.pop(job.name, None)
            if bundle is None:
                return  # the plan took its group away, and the bundle with it, see `_use`
            del bundle.jobs[job.name]
            job = bundle.claimant
            if bundle.jobs:
                self._ask(bundle.claimant, pool)
                return
            del self._bundles[job.name]
            self._undivided.pop(job.name, None)
        pool.rule.remove(job.name)
        self._forget(job, pool)

    def _forget(self, job: CoreJob, pool: Pool) -> None:
        """Remove the job from the turns of this pool."""
        queue = pool.turns.forget(job)
        if queue is not None:
            self._leave_queue(job, queue, pool)

    def _leave_queue(self, job: CoreJob, queue: StrictQueue, pool: Pool) -> None:
        self._left.append(queue)
        group = self._leaves.get(queue.group)
        if queue.jobs and job.held and group is not None and not group.preemption:
            # Without preemption no timer ends this turn. If the job's leaving did not end it either, the other waiting
            # jobs would wait until the whole queue is empty.
            pool.turns.end_turn(queue, group)
            pool.rule.set_turn(queue.group, queue.user, queue.turn)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _pass_time(self, now: float) -> list[Instruction]:
        given_up: list[Instruction] = []
        while (expired := self._deadlines.pop_expired(now)) is not None:
            deadline, name = expired
            job = self._jobs[name]
            job.given_up = True
            given_up.append(GiveUp(name, deadline - job.patient_since))
        for pool in self._pools.values():
            for taker in pool.turns.end_expired(now, self._group_of_taker, self._contested):
                if isinstance(taker, StrictQueue):
                    pool.rule.set_turn(taker.group, taker.user, taker.turn)
                    # The next turn of the jobs that stay starts in `_look_at`, which visits touched jobs only.
                    behind = (job for name in taker.jobs for job in self._jobs_behind(name))
                    self._touched.update((job.name, job) for job in behind if job.target)
                else:
                    self._touched.update((job.name, job) for job in self._jobs_behind(taker.name))
                    self._ask(taker, pool)
        return given_up

    def _group_of_taker(self, taker: TurnTaker) -> InstanceGroup:
        return self._leaves[taker.group] if isinstance(taker, StrictQueue) else self._group(taker)

    def _contested(self, taker: TurnTaker) -> bool:
        group = self._group_of_taker(taker)
        user = taker.user if isinstance(taker, StrictQueue) else taker.owner
        return self._pools[group.resource_group].rule.contested(group.name, user)

    def _deadline(self, name: str) -> float:
        job = self._jobs.get(name)
        # A search that has had slots does not wait: its other trials follow as it gets more, or as the first ones end.
        if job is None or job.given_up or job.suspended or self._claimant(job).served:
            return NEVER
        timeout = job.pending_timeout
        if timeout is None:
            timeout = self._group(job).pending_timeout
        return NEVER if timeout is None else job.patient_since + timeout

    # --- deciding -----------------------------------------------------------------------------------------------------

    def _settle(self, lost: Lost, now: float) -> list[Instruction]:
        """Move what the jobs hold as close to their targets as the free slots allow."""
        for pool in self._pools.values():
            for name, target in pool.rule.settle().items():
                bundle = self._bundles.get(name)
                job = self._jobs[name] if bundle is None else bundle.claimant
                job.target = target
                if bundle is None:
                    self._touched[name] = job
                else:
                    self._undivided[name] = bundle
        for bundle in self._undivided.values():
            changed = bundle.divide(self._group(bundle.claimant))
            self._touched.update((job.name, job) for job in changed)
        # In order of arrival: the order of instructions must depend on the events alone, not on a dictionary's history.
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
        # After all revocations: a slot that one job has just lost is not free before its worker has left it.
        for pool in self._pools.values():
            for grant in pool.grants(self._jobs):
                instructions.append(grant)
                self._taken[grant.slot] = grant.job
                self._touched[grant.job] = self._jobs[grant.job]
        for job in self._touched.values():
            if job.name in self._jobs:
                self._look_at(job, now)
        return instructions

    def _place(self, touched: list[CoreJob]) -> None:
        """Record which of these jobs and queues run and which wait for a turn."""
        queues = {queue.name: queue for queue in self._left}
        bundles = (bundle.claimant for bundle in self._undivided.values())
        # The first to wait opens a contest, so that the order counts.
        for claimant in sorted(self._claimants([*touched, *bundles]), key=lambda job: job.arrival):
            turns = self._pools[claimant.pool].turns
            queue = turns.queue_of(claimant.name)
            if queue is None:
                turns.placed(claimant)
            else:
                queues[queue.name] = queue
        for queue in queues.values():
            if queue.jobs:
                pool = self._pools[self._leaves[queue.group].resource_group]
                queue.target, queue.floor = pool.rule.used(queue.group, queue.user)
                pool.turns.placed(queue)

    def _look_at(self, job: CoreJob, now: float) -> None:
        """Record what follows from the slots that the job holds."""
        group, claimant = self._group(job), self._claimant(job)
        if job.held:
            job.served = claimant.served = True
        if len(job.held) >= job.asked:
            job.short_since = None
        elif job.short_since is None:
            job.short_since = now
        turns = self._pools[job.pool].turns
        taker = turns.queue_of(claimant.name) or claimant
        # The turn starts with the slots and not with the entitlement: others may take their time to leave.
        if taker.turn_since is None and 0 < job.floor <= len(job.held):
            turns.begin(taker, group, now)
        if job.keeps or not group.preemption:
            # The claim's `keep` depends on the slots held, so it changes with every grant.
            if claimant is not job:
                self._bundle_of[job.name].claim_together()
            self._pools[job.pool].rule.put(claimant.claim(group))

    def _belongs(self, job: CoreJob, slot: int) -> bool:
        return self.resource_group_of(slot) == job.pool

    def _group(self, job: CoreJob) -> InstanceGroup:
        return self._leaves.get(job.group) or self._plan.leaves()[0]

    def _job(self, name: str) -> CoreJob:
        try:
            return self._jobs[name]
        except KeyError:
            raise NotFound(
                f"The scheduler knows no job {name}.", hint="It has ended or never arrived.", job=name
            ) from None
