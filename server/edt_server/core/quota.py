"""Count what the jobs of an instance group use of its quotas, and choose the jobs that wait for one.

Pure. A quota of slots per user is a limit of the rule (`tree.py`), and `own` and `borrow` bound the slots of all users
together. A quota of running jobs comes before the rule: a job beyond it asks for no slot (`CoreJob.queued`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edt_sdk.schemas.job import Reason
from edt_sdk.schemas.plan import InstanceGroup
from edt_server.core.job import CoreJob


@dataclass(slots=True)
class Usage:
    """What jobs use: the number that hold slots, the number of the others that have not ended, and the slots held."""

    running: int = 0
    waiting: int = 0
    slots: int = 0


def usage(jobs: Iterable[CoreJob]) -> dict[str, Usage]:
    """Return what each owner of these jobs uses. A suspended job without slots counts as waiting."""
    found: dict[str, Usage] = {}
    for job in jobs:
        mine = found.setdefault(job.owner, Usage())
        mine.slots += len(job.held)
        if job.held:
            mine.running += 1
        else:
            mine.waiting += 1
    return found


def over_quota(jobs: Iterable[CoreJob], group: InstanceGroup) -> set[str]:
    """Return the jobs of `group` that wait for its quotas of running jobs. O(n log n) for n jobs.

    A job keeps its place until it ends, is suspended or leaves the group. Only a smaller quota takes a place back, from
    the newest jobs first, and never from a job that keeps its slots. A free place goes to the first job in line that
    may have it: the highest priority under the policy "priority", else the earliest.
    """
    strict = group.policy == "priority"
    active = [job for job in jobs if not job.suspended]
    kept = {job.name for job in active if not job.queued and job.claim(group).keep}
    active.sort(key=lambda job: (job.queued, job.name not in kept, -job.priority if strict else 0, job.arrival))
    placed, of_user, waiting = 0, Counter[str](), set[str]()
    for job in active:
        if job.name in kept or not _full(group, placed, of_user[job.owner]):
            placed += 1
            of_user[job.owner] += 1
        else:
            waiting.add(job.name)
    return waiting


def reason(me: CoreJob, jobs: Iterable[CoreJob], group: InstanceGroup, names: Callable[[str], str]) -> Reason:
    """Return the reason of a job that waits for a quota of running jobs. `jobs` are all jobs of its group."""
    others = [job for job in jobs if not job.queued and not job.suspended]
    mine = [job for job in others if job.owner == me.owner]
    own = group.user_running is not None and len(mine) >= group.user_running
    before, field = (mine, "user_running") if own else (others, "max_running")
    limit = group.user_running if own else group.max_running
    whose = f"of {me.owner} may" if own else "may"
    more = f" and {len(before) - 3} more" if len(before) > 3 else ""
    text = (
        f"It waits for a quota: {limit} {'job' if limit == 1 else 'jobs'} {whose} run at once in the instance group "
        f"{group.name}, and {', '.join(names(job.name) for job in before[:3])}{more} "
        f"{'does' if len(before) == 1 else 'do'}. It goes on when one of them ends or is suspended."
    )
    numbers = {"quota": field, "limit": limit, "before": [job.name for job in before[:100]]}
    return Reason(code="quota", text=text, held=len(me.held), entitled=me.target, asked=me.asked, numbers=numbers)


def _full(group: InstanceGroup, placed: int, of_user: int) -> bool:
    """Return whether one job more would exceed a quota of running jobs."""
    if group.max_running is not None and placed >= group.max_running:
        return True
    return group.user_running is not None and of_user >= group.user_running
