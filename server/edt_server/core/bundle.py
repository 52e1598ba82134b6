"""Let the jobs of a search claim slots as one job, however many they are.

For the rule and for the turns a bundle is one job, its claimant: it needs the least size of one job, can use what all
of them can use, and has one priority. The bundle divides what the claimant is entitled to. As many jobs run as fit,
the first to arrive first, and the rest of the slots is divided among these by the divisor rule with equal weights.
Neither the tree nor the rule knows bundles, so their invariants hold for the claimants (decision 050).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from edt_sdk.schemas.job import Reason
from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.divisor_rule import WeightedClaim, divide
from edt_server.core.job import CoreJob, job_of, row_of


class Bundle:
    """The jobs of one search in one instance group.

    Args:
        search: id of the search.
        claimant: what the rule and the turns see. Its name is the bundle's, and no job's.

    Attributes:
        jobs: by id, in the order in which they joined.
    """

    def __init__(self, search: str, claimant: CoreJob) -> None:
        self.search = search
        self.claimant = claimant
        self.jobs: dict[str, CoreJob] = {}

    @classmethod
    def name(cls, job: CoreJob, group: str) -> str:
        """Return the name of the job's bundle in that instance group. Job ids have no line breaks."""
        return f"\n\n{group}\n{job.owner}\n{job.search}"

    @classmethod
    def of(cls, first: CoreJob, group: str, number: int) -> Bundle:
        """Return the bundle that this job begins, with the next arrival number."""
        claimant = CoreJob(
            name=cls.name(first, group),
            arrival=number,
            patient_since=first.patient_since,
            owner=first.owner,
            priority=first.priority,
            max_workers=0,
            min_workers=first.min_workers,
            unit=first.unit,
            pending_timeout=None,
            group=group,
            pool=first.pool,
        )
        return cls(first.search, claimant)

    @classmethod
    def restored(cls, row: Sequence[Any]) -> Bundle:
        """Return the bundle of this `row`, without its jobs."""
        return cls(row[0], job_of(row[1]))

    def row(self) -> list[Any]:
        """Return what has to be stored besides the jobs, as JSON."""
        return [self.search, row_of(self.claimant)]

    def claim_together(self) -> None:
        """Bring the claimant up to date with the jobs."""
        me, jobs = self.claimant, self.jobs.values()
        me.demand = me.max_workers = sum(job.usable for job in jobs)
        me.min_workers = min((job.floor for job in jobs if job.usable), default=me.min_workers)
        me.held = [slot for job in jobs for slot in job.held]
        me.rigid = any(job.keeps for job in jobs)

    def seen(self) -> CoreJob:
        """Return a copy of the claimant as it is explained, with the slots of its jobs."""
        jobs = self.jobs.values()
        held = [slot for job in jobs for slot in job.held]
        return replace(self.claimant, held=held, leaving=[slot for job in jobs for slot in job.leaving])

    def reason(self, job: CoreJob, found: Reason | None) -> Reason:
        """Return why a job of the bundle holds less than it asked for. `found` is the reason of the claimant."""
        slots, held = self.claimant.target, len(job.held)
        running = sum(each.target > 0 for each in self.jobs.values())
        code = "share" if found is None else found.code
        have = f"its search has {slots} slot{'' if slots == 1 else 's'}"
        if held < job.target:
            code, text = "starting", f"It gets {job.target} of the slots of its search, and has {held} so far."
        elif job.target:
            text = f"It has {held}: {have} for {running} trial{'' if running == 1 else 's'}."
        elif running:
            earlier = f"{running} earlier trial{' has' if running == 1 else 's have'}"
            text = f"It waits: {have}, and {earlier} {'it' if slots == 1 else 'them'}."
        else:
            text = "It waits for a slot for its search."
        mine = Reason(code=code, text=text, held=held, entitled=job.target, asked=job.asked)
        if found is None:
            return mine
        text += f" Of the search as a whole: {found.text}"
        return msgspec.structs.replace(mine, text=text, details=found.details, numbers=found.numbers)

    def divide(self, group: InstanceGroup) -> list[CoreJob]:
        """Divide what the claimant is entitled to, and return the jobs whose target has changed."""
        left = self.claimant.target
        claims = {job.name: job.claim(group) for job in self.jobs.values()}
        running: dict[str, WeightedClaim] = {}
        # Slots that a job keeps come first, as in the rule.
        for job in sorted(self.jobs.values(), key=lambda job: (claims[job.name].keep == 0, job.arrival)):
            least = max(job.floor, claims[job.name].keep)
            if job.usable and least <= left:
                left -= least
                running[job.name] = WeightedClaim(1, least, job.usable, job.arrival, unit=job.unit)
        shares = dict(zip(running, divide(self.claimant.target, list(running.values())), strict=True))
        changed = [job for job in self.jobs.values() if job.target != shares.get(job.name, 0)]
        for job in changed:
            job.target = shares.get(job.name, 0)
        return changed
