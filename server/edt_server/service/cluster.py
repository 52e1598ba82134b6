"""Show the machine as it is now: slots with their jobs, and the standing of the groups. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from edt_sdk.pictures.parts.look import job_colour
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_server.core.core import Core
from edt_server.service import access
from edt_server.store import JobRow

# A reason takes long to compute among many jobs, and no reader needs a hundred.
MOST_REASONS = 100


def cluster(core: Core, rows: Sequence[JobRow]) -> dict[str, Any]:
    """Return slots, resource groups, instance groups and the jobs of these rows that have not ended, as JSON."""
    order = {job: number for number, job in enumerate(core.jobs)}
    living = sorted((row for row in rows if row.id in order), key=lambda row: order[row.id])
    return {**standing(core), "jobs": [_job(core, row) for row in living]}


def standing(core: Core) -> dict[str, Any]:
    """Return the same without the jobs: what the core knows without reading rows."""
    leaving = {slot for job in core.jobs for slot in core.leaving(job)}
    return {
        "slots": [
            {
                "id": slot.id,
                "host": slot.host,
                "device": slot.device,
                "resource_group": core.resource_group_of(slot.id),
                "job": core.holder(slot.id),
                "leaving": slot.id in leaving,
            }
            for slot in core.slots
        ],
        "resource_groups": _resource_groups(core),
        "groups": _groups(core),
    }


def _resource_groups(core: Core) -> list[dict[str, Any]]:
    free = set(core.free())
    members: dict[str | None, list[int]] = {}
    for slot in core.slots:
        members.setdefault(core.resource_group_of(slot.id), []).append(slot.id)
    return [
        {
            "name": group.name,
            "slots": len(members.get(group.name, ())),
            "free": sum(1 for slot in members.get(group.name, ()) if slot in free),
        }
        for group in core.plan.resource_groups
    ]


def _groups(core: Core) -> list[dict[str, Any]]:
    plan, standing = core.plan, core.holdings()
    sizes = {group["name"]: group["slots"] for group in _resource_groups(core)}
    inside: dict[str, list[str]] = {group.name: [] for group in plan.instance_groups}
    for job in core.jobs:
        for group in _with_parents(plan, core.group_of(job)):
            inside[group].append(job)
    borrowers: dict[str, dict[str, int]] = {group.name: {} for group in plan.instance_groups}
    for group, its in standing.items():
        for lender, slots in its.lenders.items():
            borrowers[lender][group] = slots
    return [
        {
            "name": group.name,
            "resource_group": group.resource_group,
            "parent": group.parent,
            "policy": group.policy,
            "slots": sizes[group.resource_group],
            "jobs": len(inside[group.name]),
            "waiting": [job for job in inside[group.name] if not core.holding(job) and core.asked(job)],
            "wanting": [job for job in inside[group.name] if 0 < len(core.holding(job)) < core.asked(job)],
            "held": sum(len(core.holding(job)) for job in inside[group.name]),
            **asdict(standing[group.name]),
            "borrowers": borrowers[group.name],
        }
        for group in plan.instance_groups
    ]


def unexplained(answer: dict[str, Any], user: str) -> list[dict[str, Any]]:
    """Return the jobs in `answer` that may have a reason which the user may see, at most `MOST_REASONS`."""
    found = (
        job
        for job in answer["jobs"]
        if access.may(user, job["owner"]) and (job["held"] < job["asked"] or not job["asked"])
    )
    return list(islice(found, MOST_REASONS))


def _job(core: Core, row: JobRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.spec.name,
        "owner": row.owner,
        "group": row.settings.instance_group,
        "priority": row.settings.priority,
        "held": len(core.holding(row.id)),
        "leaving": len(core.leaving(row.id)),
        "entitled": core.entitled(row.id),
        "asked": core.asked(row.id),
        "max_workers": row.settings.max_workers,
        "search": row.spec.search,
        "colour": job_colour(row.id),
        "reason": "",
    }


def _with_parents(plan: Plan, group: InstanceGroup) -> list[str]:
    parents = {each.name: each.parent for each in plan.instance_groups}
    path = [group.name]
    while parents[path[-1]]:
        path.append(parents[path[-1]])
    return path
