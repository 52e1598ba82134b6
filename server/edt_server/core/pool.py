"""A pool has the slots of a resource group, the jobs that are owed some, and the rule that decides how many.

A pool knows no events. Free slots go, lowest id first, to the most urgent job among the jobs that the free slots
suffice for: what a job needs at once, its least size or a unit, is granted at once or not at all. No job loses when a
job that does not fit is skipped, because no job gets more than its target and the targets never add up to more than
there is.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping

from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.instructions import Grant
from edt_server.core.job import CoreJob
from edt_server.core.rule import Rule
from edt_server.core.turns import Turns

Urgency = tuple[bool, int, int, int]


class Pool:
    """The pool of a resource group. `turns` are those of its jobs so far."""

    def __init__(self, name: str, groups: Iterable[InstanceGroup], turns: Turns | None = None) -> None:
        self.name = name
        self.slots: set[int] = set()
        self.turns = turns or Turns()
        self.groups = tuple(groups)
        self.rule = Rule(self.groups, 0)
        self._free: set[int] = set()
        self._lowest: list[int] = []  # a heap of them, with slots that are no longer free
        self._short: list[tuple[Urgency, str]] = []  # a heap of jobs that are owed slots, with outdated entries

    def set_slots(self, slots: set[int], taken: Mapping[int, str]) -> None:
        """Replace its slots. Slots in `taken` are not free."""
        self.slots = slots
        self._free = {slot for slot in slots if slot not in taken}
        self._lowest = sorted(self._free)
        self.rule.set_slots(len(slots))

    def free(self, slot: int) -> None:
        """Record that the slot is empty. A slot of another pool is ignored."""
        if slot in self.slots and slot not in self._free:
            self._free.add(slot)
            heapq.heappush(self._lowest, slot)

    def owe(self, job: CoreJob) -> None:
        """Look at the job in the next `grants`, because it may hold less than its target."""
        if job.missing:
            heapq.heappush(self._short, (job.urgency(), job.name))

    def grants(self, jobs: Mapping[str, CoreJob]) -> list[Grant]:
        """Grant free slots as far as jobs are entitled to them, and record that the jobs hold them."""
        grants: list[Grant] = []
        later: list[tuple[Urgency, str]] = []
        while self._free and self._short:
            entry = heapq.heappop(self._short)
            job = jobs.get(entry[1])
            if job is None or job.pool != self.name or not job.missing or job.urgency() != entry[0]:
                continue
            if later and entry == later[-1]:
                continue  # a job can be in the heap several times with one urgency
            if job.missing > (len(self._free.difference(job.barred)) if job.barred else len(self._free)):
                # Not a reason to stop: a job of a lower urgency may need fewer slots at once.
                later.append(entry)
                continue
            for _ in range(job.missing):
                slot = self._take(job.barred)
                job.held.append(slot)
                grants.append(Grant(job.name, slot, len(job.held)))
            self.owe(job)
        for entry in later:
            heapq.heappush(self._short, entry)
        # Outdated entries are dropped when they reach the top. Those below it would pile up while no slot is free.
        if len(self._short) > 2 * len(jobs) + 64:
            self._short = sorted(set(self._short))
            if len(self._short) > len(jobs) + 64:
                here = [jobs[name] for name in {name for _, name in self._short} if name in jobs]
                self._short = sorted((job.urgency(), job.name) for job in here if job.missing and job.pool == self.name)
        return grants

    def _take(self, barred: Collection[int]) -> int:
        if barred:
            slot = min(self._free.difference(barred))
            self._free.remove(slot)
            return slot  # and stays in the heap, with the other slots that are no longer free
        while True:
            slot = heapq.heappop(self._lowest)
            if slot in self._free:
                self._free.remove(slot)
                return slot
