"""Make the schedulers to play a workload against: the core under each of its policies, and two rigid queues.

The rigid queues are for comparison: they show what a batch system does with jobs that need all their workers from the
first second to the last. They have the core's interface, so that the same engine plays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import CoreEvent, JobArrived, JobGone, PlanChanged, SlotsChanged
from edt_server.core.instructions import Grant, Instruction
from edt_server.simulator.engine import Scheduler
from edt_server.simulator.workload import SimulatedJob

ELASTIC = ("fairshare", "throughput", "priority", "fifo")
RIGID = ("rigid-fifo", "rigid-backfill")
POLICIES = (*ELASTIC, *RIGID)


class RigidQueue:
    """A queue that serves first come, first served, all workers or none. No slot is ever taken back.

    Args:
        backfill: smaller jobs may overtake a job that does not fit. Without it that job blocks the rest.
    """

    def __init__(self, *, backfill: bool) -> None:
        self._backfill = backfill
        # A dict as an ordered set, so that the same workload gets the same slots in every run.
        self._free: dict[int, None] = {}
        self._all = 0
        self._waiting: dict[str, int] = {}  # in order of arrival
        self._held: dict[str, list[int]] = {}

    def apply(self, event: CoreEvent, now: float) -> Sequence[Instruction]:
        """Take an event in, and return the slots of the jobs that start. `now` decides nothing."""
        match event:
            case SlotsChanged(slots=slots):
                self._free = dict.fromkeys(slot.id for slot in slots)
                self._all = len(slots)
            case JobArrived(job=job, max_workers=size):
                self._waiting[job] = size
            case JobGone(job=job):
                self._waiting.pop(job, None)
                self._free.update(dict.fromkeys(self._held.pop(job, ())))
        return self._start()

    def next_wake(self, now: float) -> float | None:
        """Return None: time changes nothing here."""
        return None

    def _start(self) -> list[Instruction]:
        started: list[Instruction] = []
        # A copy, because a job that starts leaves the queue during the loop.
        for job, size in list(self._waiting.items()):
            if size <= len(self._free):
                del self._waiting[job]
                slots = list(islice(self._free, size))
                for slot in slots:
                    del self._free[slot]
                self._held[job] = slots
                started += [Grant(job, slot, number) for number, slot in enumerate(slots, 1)]
            elif not self._backfill and size <= self._all:  # a job that can never fit blocks no other
                break
        return started


def make(policy: str, plan: Plan, slots: Sequence[Slot]) -> Scheduler:
    """Return the scheduler of that name with these slots. A rigid queue ignores the plan.

    The policy is one of `POLICIES`, for every queue of the plan, or "" for the plan's own policies. InvalidRequest for
    another one, Unprocessable for a plan that cannot be used.
    """
    if policy not in RIGID:
        return make_core(policy, plan, slots)
    queue = RigidQueue(backfill=policy == "rigid-backfill")
    queue.apply(SlotsChanged(tuple(slots)), 0.0)
    return queue


def make_core(policy: str, plan: Plan, slots: Sequence[Slot]) -> Core:
    """Return the core under an elastic policy, "" for the plan's own, with these slots. It raises what `make` does."""
    core = Core()
    core.apply(PlanChanged(under(policy, plan)), 0.0)
    core.apply(SlotsChanged(tuple(slots)), 0.0)
    return core


def fit(jobs: Sequence[SimulatedJob], policy: str, plan: Plan, slots: int) -> tuple[SimulatedJob, ...]:
    """Return the jobs as that policy takes them: without elasticity, or in a queue of the plan, which must have it."""
    if policy in RIGID:
        return tuple(job.rigid(slots) for job in jobs)
    # A job without a queue goes to the plan's first, as a submission to the server does.
    first = plan.leaves()[0].name
    return tuple(replace(job, instance_group=plan.group(job.instance_group or first).name) for job in jobs)


def under(policy: str, plan: Plan) -> Plan:
    """Return the plan with that policy in every queue. "" returns the plan itself."""
    if not policy:
        return plan.check()
    if policy not in ELASTIC:
        raise InvalidRequest(
            f"There is no policy {policy!r}.", hint=f"Choose from {', '.join(POLICIES)}.", field="policy"
        )
    # "throughput" is no policy of a queue: it is fair share by measured speed.
    named, aware = ("fairshare", True) if policy == "throughput" else (policy, False)
    leaves = {group.name for group in plan.leaves()}
    groups = [
        msgspec.structs.replace(group, policy=named, throughput_aware=aware) if group.name in leaves else group
        for group in plan.instance_groups
    ]
    return msgspec.structs.replace(plan, instance_groups=tuple(groups)).check()
