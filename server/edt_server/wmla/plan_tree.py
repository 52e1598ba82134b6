"""The instance groups as a tree of resource plans, as dlicmd prints it. Pure.

A job belongs to a node when its consumer is the node's path. The root is the machine, with the groups without a parent
below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edt_sdk.schemas.errors import NotFound
from edt_sdk.schemas.plan import InstanceGroup, Plan

ROOT = "jupyter-edt"


def tree(plan: Plan) -> dict[str, Any]:
    """Return the whole tree."""
    return {"id": ROOT, "pid": "", "childTreeDto": [_node(plan, group, ROOT) for group in _inside(plan, "")]}


def node(plan: Plan, name: str) -> dict[str, Any]:
    """Return one group with its settings, by its name or the last part of a path. NotFound for an unknown group."""
    if name.strip("/") == ROOT:
        return tree(plan)
    wanted = name.rstrip("/").rpartition("/")[2]
    for group in plan.instance_groups:
        if group.name == wanted:
            return {
                **_node(plan, group, group.parent or ROOT),
                "path": path_of(group.name, parents(plan)),
                "resourceGroup": group.resource_group,
                "policy": group.policy,
                "shareRatio": group.share,
                "owned": group.own,
                "lendLimit": group.lend,
                "borrowLimit": group.borrow,
                "preemption": group.preemption,
            }
    raise NotFound(
        f"There is no resource plan {name!r}.",
        hint=f"There are {', '.join(group.name for group in plan.instance_groups)}.",
    )


def parents(plan: Plan) -> dict[str, str]:
    """Return the parent of each instance group, "" for none."""
    return {group.name: group.parent for group in plan.instance_groups}


def path_of(group: str, parents: Mapping[str, str]) -> str:
    """Return the path of a group's node, such as `/jupyter-edt/research/vision`. A removed group is below the root."""
    path = [group]
    while parent := parents.get(path[-1], ""):
        path.append(parent)
    return "/".join(["", ROOT, *reversed(path)])


def _inside(plan: Plan, parent: str) -> list[InstanceGroup]:
    return [group for group in plan.instance_groups if group.parent == parent]


def _node(plan: Plan, group: InstanceGroup, parent: str) -> dict[str, Any]:
    # dlicmd reads exactly these three names, at every level of the tree.
    children = [_node(plan, child, group.name) for child in _inside(plan, group.name)]
    return {"id": group.name, "pid": parent, "childTreeDto": children}
