"""What the core knows, and the questions that may be asked of it. Nothing here changes anything.

`core.py` says how events change it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from edt_sdk.schemas.errors import NotFound, Unprocessable
from edt_sdk.schemas.job import Reason
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core import reason as reasons
from edt_server.core.job import Job
from edt_server.core.pool import Pool
from edt_server.core.rule import Holding
from edt_server.core.standings import Standings, standing

_NONE_KNOWN: Mapping[str, tuple[float, float]] = {}


class CoreState:
    """The plan, the slots, the jobs and who holds what."""

    _plan: Plan
    _leaves: dict[str, InstanceGroup]

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._jobs: dict[str, Job] = {}  # in order of arrival
        self._taken: dict[int, str] = {}  # the job that holds or is leaving each slot
        self._pools: dict[str, Pool] = {}
        self._pool_of: dict[int, Pool] = {}  # of each slot
        self._arrivals = 0
        self._standings: dict[str, Standings] = {}  # of the pools that were asked about since the last event

    @property
    def plan(self) -> Plan:
        """How the slots are shared."""
        return self._plan

    @property
    def groups(self) -> tuple[InstanceGroup, ...]:
        """The instance groups that jobs may be in."""
        return self._plan.leaves()

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
        return tuple(slot for slot in self._slots if slot not in self._taken)

    def holder(self, slot: int) -> str | None:
        """The job whose worker is in this slot, leaving or not; None when the slot is free or does not exist."""
        return self._taken.get(slot)

    def holdings(self) -> dict[str, Holding]:
        """What each instance group has, owns, borrows and lends."""
        return {name: holding for pool in self._pools.values() for name, holding in pool.rule.groups().items()}

    def group_of(self, job: str) -> InstanceGroup:
        """The group whose policy the job is under: its own, or the plan's first when that is not there any more."""
        return self._group(self._job(job))

    def resource_group_of(self, slot: int) -> str | None:
        """The resource group the slot belongs to; None for a slot that no group takes, or that does not exist."""
        pool = self._pool_of.get(slot)
        return None if pool is None else pool.name

    def holding(self, job: str) -> tuple[int, ...]:
        """Slots the job holds and may keep, in the order they were granted."""
        return tuple(self._job(job).held)

    def leaving(self, job: str) -> tuple[int, ...]:
        """Slots revoked from the job and not released by it yet."""
        return tuple(self._job(job).leaving)

    def entitled(self, job: str) -> int:
        """Slots the job should hold now under the rule."""
        return self._job(job).target

    def asked(self, job: str) -> int:
        """Slots the job could use now: min(max_workers, demand), at least its minimum; 0 while it is suspended."""
        return self._job(job).asked

    def speeds(self, job: str) -> dict[int, float]:
        """What the job was measured to do: slots → speed."""
        return dict(self._job(job).speeds)

    def suspended(self, job: str) -> bool:
        """True from the job's JobSuspended to its JobResumed, also while it still leaves slots."""
        return self._job(job).suspended

    def settled(self) -> bool:
        """True when no slot is on its way: every job holds exactly what it is entitled to."""
        return not any(job.leaving or len(job.held) < job.target for job in self._jobs.values())

    def reason(
        self,
        job: str,
        names: Callable[[str], str] = str,
        *,
        now: float | None = None,
        ends: Mapping[str, tuple[float, float]] | None = None,
    ) -> Reason | None:
        """Why the job holds less than it asked for, None when it does not.

        O(jobs of its resource group) for the first one after an event, O(slots) for others.

        Args:
            job: its id.
            names: id → what people call it.
            now: the time, to tell a forecast in; None for none in the sentence.
            ends: job → when it ends by its progress, not before and not after, for those that this is known of. The
                same mapping, where several jobs are asked about, is looked through once.
        """
        me = self._job(job)
        if len(me.held) >= me.asked and not me.suspended:
            return None
        pool, group = self._pools[me.pool], self._group(me)
        at = self._standings.get(pool.name)
        if at is None:
            at = Standings(pool, (each for each in self._jobs.values() if each.pool == pool.name))
            self._standings[pool.name] = at
        cut = pool.rule.cut(job)
        situation = reasons.Situation(
            me=standing(me),
            group=group,
            cut=cut,
            slots=len(pool.slots),
            most=self.most(group.name),
            running=at.running,
            leaving=at.leaving,
            ahead=at.ahead(me) if me.target == 0 else 0,
            turns=at.taking_turns,
            if_gone=at.if_gone(cut.rival, me),
            forecast=at.forecast(me, group.quantum, _NONE_KNOWN if ends is None else ends),
            now=now,
        )
        return reasons.explain(situation, names)

    def most(self, instance_group: str) -> int:
        """Slots that the jobs of the group can have at best, with nobody else there, by the plan and the slots."""
        pool = self._pools[self._plan.group(instance_group).resource_group]
        path = []
        node = pool.rule.node(instance_group)
        while node.parent is not None:
            path.append(node)
            node = node.parent
        best = node.own
        for node in reversed(path):
            assert node.parent is not None
            for child in node.parent.children.values():
                if child is not node and child.lend is not None:
                    best -= max(0, child.own - child.lend)
            best = max(best, node.own)
            if node.borrow is not None:
                best = min(best, node.own + node.borrow)
        return best

    def fits(self, instance_group: str, min_workers: int = 1, slots_per_unit: int = 1) -> None:
        """Unprocessable when a job of this least size could never run in that group, or there is no such group.

        While its resource group has no slots at all nothing is refused: its hosts may be on their way.
        """
        group = self.check_group(instance_group)
        needed = -(-min_workers // slots_per_unit) * slots_per_unit
        slots, most = len(self._pools[group.resource_group].slots), self.most(group.name)
        if slots and needed > most:
            raise Unprocessable(
                reasons.never(needed, most, slots, group.name),
                hint="edt cluster shows what each group has.",
                field="min_workers",
            )

    def check_group(self, name: str) -> InstanceGroup:
        """The instance group of this name, or Unprocessable with the names there are."""
        return self._plan.group(name)

    def check_plan(self, plan: Plan) -> Plan:
        """The plan, or Unprocessable: it contradicts itself, or has no place for a job that is there."""
        plan.check()
        leaves = {group.name for group in plan.leaves()}
        left: dict[str, list[str]] = {}
        for job in self._jobs.values():
            # A group that is gone already, with jobs in it, is no reason not to change another.
            if job.group not in leaves and job.group in self._leaves:
                left.setdefault(job.group, []).append(job.name)
        for group, jobs in left.items():
            inner = any(each.name == group for each in plan.instance_groups)
            raise Unprocessable(
                f"The instance group {group!r} cannot {'hold other groups' if inner else 'be removed'}: it has "
                f"{len(jobs)} job{'s' if len(jobs) > 1 else ''}, such as {jobs[0]}.",
                hint="Move these jobs to another group first, or wait until they have ended.",
                field="instance_groups",
            )
        return plan

    def digest(self) -> str:
        """SHA-256 (hex) of the whole state; equal states, and only they, have equal digests."""
        return hashlib.sha256(json.dumps(self.state(), separators=(",", ":")).encode()).hexdigest()

    def state(self) -> dict[str, Any]:
        """All of it as JSON, for `restored`."""
        return {
            "plan": msgspec.to_builtins(self._plan),
            "slots": [[slot.id, slot.host, slot.device] for slot in self._slots.values()],
            "arrivals": self._arrivals,
            "jobs": [[getattr(job, name) for name in FIELDS] for job in self._jobs.values()],
            "turns": {pool.name: pool.turns.state() for pool in self._pools.values()},
        }

    def check(self) -> None:
        """Assert the invariants. For tests: O(jobs + slots)."""
        taken = [slot for job in self._jobs.values() for slot in (*job.held, *job.leaving)]
        assert len(taken) == len(set(taken)), f"a slot has two jobs: {sorted(taken)}"
        assert set(taken) == set(self._taken), "somebody is in a slot and nobody knows"
        for job in self._jobs.values():
            held, target = len(job.held), job.target
            assert held <= target <= job.asked, f"{job.name}: {held} held of {target} of {job.asked}"
            assert target == 0 or (target >= job.floor and target % job.unit == 0), f"{job.name} gets {target}"
            assert all(self._belongs(job, slot) for slot in job.held), f"{job.name} holds a slot that is not for it"
            assert target == self._pools[job.pool].rule.target(job.name), f"{job.name}: an entitlement out of date"
        for pool in self._pools.values():
            here = [job for job in self._jobs.values() if job.pool == pool.name]
            assert sum(job.target for job in here) <= len(pool.slots), "more entitled than there is"
            assert pool.idle == {slot for slot in pool.slots if slot not in self._taken}, "a free slot was forgotten"
            short = [job.missing for job in here if job.missing]
            assert not short or min(short) > len(pool.idle), "a free slot was not granted"
            fair = {job.name for job in here if job.asked and not job.target and not pool.turns.party(job.name)}
            parties = {party.name for party in pool.turns.parties() if not party.target}
            assert fair | parties == set(pool.turns.waiting), "somebody waits and nobody knows"
            for party in pool.turns.parties():
                assert party.jobs == {job.name for job in here if pool.turns.party(job.name) is party}
                assert party.target == sum(self._jobs[name].target for name in party.jobs), f"{party} gets another"

    def _belongs(self, job: Job, slot: int) -> bool:
        pool = self._pool_of.get(slot)
        return pool is not None and pool.name == job.pool

    def _group(self, job: Job) -> InstanceGroup:
        return self._leaves.get(job.group) or self._plan.leaves()[0]

    def _job(self, name: str) -> Job:
        try:
            return self._jobs[name]
        except KeyError:
            raise NotFound(
                f"The scheduler knows no job {name}.", hint="It has ended or never arrived.", job=name
            ) from None


FIELDS = tuple(each.name for each in fields(Job))
