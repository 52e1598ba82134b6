"""Refuse what a core cannot accept: a job that fits in no plan, and a plan without a place for a job. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_server.core.job import CoreJob
from edt_server.core.reason import never


def check_size(needed: int, most: int, slots: int, group: InstanceGroup) -> None:
    """Raise Unprocessable when a job needs more slots at once than it can have in that group.

    `slots` are those of its resource group. Without any it refuses nothing: its hosts may still be starting.
    """
    if slots and needed > most:
        raise Unprocessable(
            never(needed, most, slots, group),
            hint="edt cluster shows what each group has.",
            field="min_workers",
        )


def check_places(plan: Plan, jobs: Iterable[CoreJob], present: Container[str]) -> None:
    """Raise Unprocessable when the plan leaves a job without a group. `present` are the groups of the present plan."""
    leaves = {group.name for group in plan.leaves()}
    left: dict[str, list[str]] = {}
    for job in jobs:
        # A group that is already gone, with jobs in it, must not block a change of another group.
        if job.group not in leaves and job.group in present:
            left.setdefault(job.group, []).append(job.name)
    for name, of_group in left.items():
        inner = any(each.name == name for each in plan.instance_groups)
        raise Unprocessable(
            f"The instance group {name!r} cannot {'hold other groups' if inner else 'be removed'}: it has "
            f"{len(of_group)} job{'s' if len(of_group) > 1 else ''}, such as {of_group[0]}.",
            hint="Move these jobs to another group first, or wait until they have ended.",
            field="instance_groups",
        )
