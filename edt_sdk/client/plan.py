"""`PlanClient`: the verbs of `Client` for administrators, to read and change how the slots are shared.

The plan is one value: all resource groups and instance groups. `Client.set_plan` replaces it, the other verbs change
one group. A change is checked as a whole and applies at once to running jobs. A refused change changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from edt_sdk.client.session import ServerSession
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.fields import names_checked
from edt_sdk.schemas.plan import (
    DEFAULT_RESOURCE_GROUP,
    MAX_PRIORITY,
    InstanceGroup,
    Plan,
    PlanAsRead,
    QuotaUse,
    ResourceGroup,
)

INSTANCE_GROUPS = "instance-groups"
RESOURCE_GROUPS = "resource-groups"


@names_checked
class PlanClient(ServerSession):
    """A client for the plan of a server.

    A change raises NotAllowed for a user who is no admin of the server (`c.EdtApp.admins`).
    """

    def plan(self) -> PlanAsRead:
        """Return all resource groups and instance groups, as one value."""
        return _as_read(*self._connection.versioned("GET", "plan"))

    def set_plan(self, plan: Plan | Mapping[str, Any]) -> PlanAsRead:
        """Replace the plan as a whole, and return the new plan.

        Args:
            plan: a Plan, or the same as JSON: `{"resource_groups": […], "instance_groups": […]}`. One that was made
                from what `plan()` returned (with `msgspec.structs.replace`, or as JSON with its "version") replaces
                that one only. Any other replaces any plan.

        Raises:
            ChangedMeanwhile: the plan was changed after it was read.
            Unprocessable: it cannot be used, or has no place for a job that has not ended.
        """
        # The version guards against a race of two administrators: the second write is refused, not merged
        # (docs/decisions/019).
        made_from, body = "", plan
        if isinstance(plan, PlanAsRead):
            made_from, body = plan.version, plan.plan
        elif isinstance(plan, Mapping):
            made_from = str(plan.get("version", ""))
            # The version travels in a header (If-Match) and is no field of a plan.
            body = {name: value for name, value in plan.items() if name != "version"}
        return _as_read(*self._connection.versioned("PUT", "plan", body=body, made_from=made_from))

    def quotas(self) -> list[QuotaUse]:
        """Return how much of each quota is used, by me and by all users together. Empty when none is set."""
        return msgspec.convert(self._connection.json("GET", "quota")["quotas"], list[QuotaUse])

    # --- instance groups ----------------------------------------------------------------------------------------------

    def instance_groups(self) -> list[InstanceGroup]:
        """Return all instance groups, in the order of the plan."""
        answer = self._connection.json("GET", INSTANCE_GROUPS)
        return msgspec.convert(answer["instance_groups"], list[InstanceGroup])

    def create_instance_group(
        self,
        name: str,
        *,
        resource_group: str = DEFAULT_RESOURCE_GROUP,
        parent: str = "",
        policy: str = "fairshare",
        preemption: bool = True,
        share: int = 1,
        own: int = 0,
        lend: int | None = None,
        borrow: int | None = None,
        user_shares: Mapping[str, int] | None = None,
        throughput_aware: bool = False,
        quantum: float = 60.0,
        pending_timeout: float | None = None,
        max_priority: int = MAX_PRIORITY,
        max_waiting: int | None = None,
        max_running: int | None = None,
        max_bytes: int | None = None,
        user_waiting: int | None = None,
        user_running: int | None = None,
        user_slots: int | None = None,
        user_bytes: int | None = None,
    ) -> InstanceGroup:
        """Add a queue and return it.

        Args:
            name: its name.
            resource_group: the slots it divides.
            parent: the group it is part of, "" for none.
            policy: "fairshare" (weight = priority), "priority" (strictly the higher first) or "fifo".
            preemption: take slots above a job's entitlement back at its next update, not when it gives them up.
            share: weight against its sibling groups for slots without an owner and for lent slots.
            own: slots that it owns.
            lend: most of its own slots that other groups may use while it does not. None for all.
            borrow: most slots it may use beyond its own. None for no limit.
            user_shares: owner of jobs → weight, "*" for all other owners. None to divide among jobs directly.
            throughput_aware: a slot goes where it speeds up most.
            quantum: seconds a job runs at least before one that waits takes its turn.
            pending_timeout: seconds after which a job that has never got a slot ends with ERROR. None for never.
            max_priority: highest priority of a job here, which only an admin may exceed.
            max_waiting: most jobs without a slot. A submission above it is refused. None for no quota, as for all that
                follow.
            max_running: most jobs with slots at once. More jobs wait.
            max_bytes: most bytes that its jobs have stored. A submission above it is refused.
            user_waiting: as `max_waiting`, of one user.
            user_running: as `max_running`, of one user.
            user_slots: most slots of one user's jobs. The group is then divided among its users first.
            user_bytes: as `max_bytes`, of one user.

        Raises:
            Unprocessable: there is one of that name, or a value cannot be.
        """
        group = InstanceGroup(
            name=name,
            resource_group=resource_group,
            parent=parent,
            policy=policy,
            preemption=preemption,
            share=share,
            own=own,
            lend=lend,
            borrow=borrow,
            user_shares=None if user_shares is None else dict(user_shares),
            throughput_aware=throughput_aware,
            quantum=quantum,
            pending_timeout=pending_timeout,
            max_priority=max_priority,
            max_waiting=max_waiting,
            max_running=max_running,
            max_bytes=max_bytes,
            user_waiting=user_waiting,
            user_running=user_running,
            user_slots=user_slots,
            user_bytes=user_bytes,
        )
        return msgspec.convert(self._connection.json("POST", INSTANCE_GROUPS, body=group), InstanceGroup)

    def update_instance_group(self, name: str, **changes: Any) -> InstanceGroup:
        """Change a queue, at once also for its running jobs, and return it.

        `changes` are arguments of `create_instance_group`. The others stay.

        Raises:
            NotFound: there is no such group.
            Unprocessable: there is no such field, or the value cannot be used.
        """
        answer = self._connection.json("PATCH", _path(INSTANCE_GROUPS, name), body=changes)
        return msgspec.convert(answer, InstanceGroup)

    def delete_instance_group(self, name: str) -> None:
        """Remove a queue. Unprocessable while it has jobs or groups, NotFound when there is none."""
        self._connection.json("DELETE", _path(INSTANCE_GROUPS, name))

    # --- resource groups ----------------------------------------------------------------------------------------------

    def resource_groups(self) -> list[ResourceGroup]:
        """Return all resource groups, in the order of the plan."""
        answer = self._connection.json("GET", RESOURCE_GROUPS)
        return msgspec.convert(answer["resource_groups"], list[ResourceGroup])

    def create_resource_group(
        self, name: str, *, hosts: Sequence[str] = (), slots: str | int = "", portable: bool = False
    ) -> ResourceGroup:
        """Add a group of hosts and return it.

        Args:
            name: its name.
            hosts: names of its hosts. Empty for every host that no other resource group names.
            slots: slots of each host: "ngpus" or "ncpus", either alone or times or divided by a whole number
                ("ncpus/2"), or a number. "" for the host's own number.
            portable: its jobs use only instructions that all processors have. They are slower, and may be on hosts
                whose processors differ.

        Raises:
            Unprocessable: the name is taken, a host is in two groups, or the formula is none.
        """
        group = ResourceGroup(name=name, hosts=tuple(hosts), slots=str(slots), portable=portable)
        return msgspec.convert(self._connection.json("POST", RESOURCE_GROUPS, body=group), ResourceGroup)

    def update_resource_group(self, name: str, **changes: Any) -> ResourceGroup:
        """Change `hosts`, `slots` or `portable` of a group of hosts, and return it.

        Raises:
            NotFound: there is none.
            Conflict: jobs run that have started with, or without, the instructions of portable jobs.
            Unprocessable: a field that there is not, or that cannot have this value.
        """
        if isinstance(changes.get("slots"), int):
            changes["slots"] = str(changes["slots"])
        answer = self._connection.json("PATCH", _path(RESOURCE_GROUPS, name), body=changes)
        return msgspec.convert(answer, ResourceGroup)

    def delete_resource_group(self, name: str) -> None:
        """Remove a group of hosts. Unprocessable while an instance group is over it, NotFound when there is none."""
        self._connection.json("DELETE", _path(RESOURCE_GROUPS, name))


def _as_read(answer: Any, version: str) -> PlanAsRead:
    # The version is a field of the plan, so that it survives `msgspec.structs.replace` on its way back
    # (docs/decisions/019).
    return msgspec.convert({**answer, "version": version}, PlanAsRead)


def _path(groups: str, name: str) -> str:
    if not name or name in (".", "..") or "/" in name:
        raise InvalidRequest(f"{name!r} is not the name of a group.", field="name")
    # Quoted as a whole: a name with `?` or `#` stays one part of the path.
    return f"{groups}/{quote(name, safe='')}"
