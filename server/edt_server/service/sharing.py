"""The plan as a resource: read it, change it as a whole or one group of it, and fit the slots to it.

Every change has one form: a new plan is made from the present one, checked as a whole, committed as an input of the
core, together with the slots that it makes of the hosts. So a change that is wrong anywhere changes nothing, and it
counts at once for the jobs that run. The HTTP layer decides which user may change the plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import ChangedMeanwhile, NotFound, Unprocessable
from edt_sdk.schemas.job import convert_change
from edt_sdk.schemas.plan import InstanceGroup, Named, Plan, ResourceGroup
from edt_server.core.events import PlanChanged, SlotsChanged
from edt_server.ledger import Change, Changes
from edt_server.system.slots import Host, plan_slots

Edit = Callable[[Plan], Plan]


class Sharing:
    """The plan of a service.

    Args:
        change: runs a change and commits it.
        plan: returns the plan that is in force.
        elsewhere: returns the devices that other stores' jobs use now. Their slots are not offered.
    """

    def __init__(self, change: Changes, plan: Callable[[], Plan], elsewhere: Callable[[], Collection[str]]) -> None:
        self._change = change
        self._plan = plan
        self._elsewhere = elsewhere
        self._hosts: tuple[Host, ...] = ()

    # --- at the start -------------------------------------------------------------------------------------------------

    def begin(self, change: Change, plan: Plan, hosts: Sequence[Host]) -> None:
        """Divide the slots of these hosts, by `plan` where the store has none yet."""
        self._hosts = tuple(hosts)
        seq: int | None = None
        if not change.ledger.store.events(kinds=[kinds.PLAN_CHANGED], limit=1):
            seq = change.apply(PlanChanged(plan))
        self._fit(change, cause=seq)

    async def set_hosts(self, hosts: Sequence[Host]) -> None:
        """Set the hosts. The slots of hosts that stay are unchanged."""

        def work(change: Change) -> None:
            self._hosts = tuple(hosts)
            self._fit(change)

        await self._change(work)

    async def look_again(self) -> None:
        """Fit the slots to the devices that are free of other stores now."""
        await self._change(self._fit)

    @property
    def has_gpus(self) -> bool:
        """Return True when a host has devices that another store could use."""
        return any(host.gpus for host in self._hosts)

    def _fit(self, change: Change, *, cause: int | None = None) -> None:
        elsewhere = self._elsewhere()
        slots = plan_slots(change.core.plan, self._hosts, change.core.slots)
        # Two stores on one host must never offer the same GPU.
        slots = tuple(slot for slot in slots if slot.device not in elsewhere)
        if slots != change.core.slots:
            change.apply(SlotsChanged(slots), cause=cause)

    @property
    def plan(self) -> Plan:
        """Return how the slots are shared now."""
        return self._plan()

    # --- verbs --------------------------------------------------------------------------------------------------------

    async def set_plan(self, user: str, plan: Plan, *, made_from: str | None = None) -> Plan:
        """Replace the plan.

        Args:
            user: the administrator.
            plan: the new one.
            made_from: the `version` of the plan it was made from. None replaces any plan.

        Raises:
            ChangedMeanwhile: the plan has changed since.
            Unprocessable: it cannot be used, or has no place for a present job.
        """

        def edit(before: Plan) -> Plan:
            # Compared inside the transaction that replaces the plan: two administrators cannot race
            # (docs/decisions/019).
            if made_from not in (None, version(before)):
                raise ChangedMeanwhile(
                    "The plan was changed by somebody else since it was read.",
                    hint="Read it again, and make the change in what it is now.",
                    field="If-Match",
                )
            return plan

        return await self._edit(user, edit)

    async def add_instance_group(self, user: str, group: InstanceGroup) -> InstanceGroup:
        """Add a group. Unprocessable when it cannot be."""
        plan = await self._edit(user, lambda plan: with_instance_groups(plan, [*plan.instance_groups, group]))
        return _find(plan.instance_groups, group.name, "instance group")

    async def change_instance_group(self, user: str, name: str, changes: Mapping[str, Any]) -> InstanceGroup:
        """Change fields of a group. NotFound, or Unprocessable when they cannot be so."""

        def edit(plan: Plan) -> Plan:
            return with_instance_groups(plan, _changed(plan.instance_groups, name, "instance group", changes))

        return _find((await self._edit(user, edit)).instance_groups, name, "instance group")

    async def remove_instance_group(self, user: str, name: str) -> None:
        """Remove a group. NotFound, or Unprocessable while it has jobs or groups."""
        await self._edit(user, lambda plan: without_instance_group(plan, name))

    async def add_resource_group(self, user: str, group: ResourceGroup) -> ResourceGroup:
        """Add a group of hosts. Unprocessable when it cannot be."""
        plan = await self._edit(user, lambda plan: with_resource_groups(plan, [*plan.resource_groups, group]))
        return _find(plan.resource_groups, group.name, "resource group")

    async def change_resource_group(self, user: str, name: str, changes: Mapping[str, Any]) -> ResourceGroup:
        """Change fields of a group of hosts. NotFound, or Unprocessable when they cannot be so."""

        def edit(plan: Plan) -> Plan:
            return with_resource_groups(plan, _changed(plan.resource_groups, name, "resource group", changes))

        return _find((await self._edit(user, edit)).resource_groups, name, "resource group")

    async def remove_resource_group(self, user: str, name: str) -> None:
        """Remove a group of hosts. NotFound, or Unprocessable while an instance group is over it."""
        await self._edit(user, lambda plan: without_resource_group(plan, name))

    async def _edit(self, user: str, edit: Edit) -> Plan:
        def work(change: Change) -> Plan:
            before = change.core.plan
            after = edit(before).check()
            if after != before:
                seq = change.apply(PlanChanged(after), before=msgspec.to_builtins(before), by=user)
                self._fit(change, cause=seq)
            return after

        return await self._change(work)


def version(plan: Plan) -> str:
    """Return the version of a plan, a hash: equal plans have equal versions."""
    # A digest and not a counter: nothing to store, and equal plans do not conflict (docs/decisions/019).
    return hashlib.sha256(msgspec.json.encode(plan, order="deterministic")).hexdigest()[:16]


def configured_plan(instance_groups: Sequence[Any], resource_groups: Sequence[Any]) -> Plan:
    """Return the configured plan, from the name or the fields of each group. Unprocessable when it is not valid.

    Instance groups without a resource group are over the first one.
    """
    resources = [{"name": group} if isinstance(group, str) else dict(group) for group in resource_groups]
    groups = [{"name": group} if isinstance(group, str) else dict(group) for group in instance_groups]
    if resources and "name" in resources[0]:
        groups = [{"resource_group": resources[0]["name"], **group} for group in groups]
    return convert_change({"resource_groups": resources, "instance_groups": groups}, Plan).check()


def instance_group(plan: Plan, name: str) -> InstanceGroup:
    """Return the instance group of that name, leaf or not. NotFound when there is none."""
    return _find(plan.instance_groups, name, "instance group")


def resource_group(plan: Plan, name: str) -> ResourceGroup:
    """Return the resource group of that name. NotFound when there is none."""
    return _find(plan.resource_groups, name, "resource group")


def with_instance_groups(plan: Plan, groups: Sequence[InstanceGroup]) -> Plan:
    """Return the plan with these instance groups, not checked."""
    return msgspec.structs.replace(plan, instance_groups=tuple(groups))


def with_resource_groups(plan: Plan, groups: Sequence[ResourceGroup]) -> Plan:
    """Return the plan with these resource groups, not checked."""
    return msgspec.structs.replace(plan, resource_groups=tuple(groups))


def without_instance_group(plan: Plan, name: str) -> Plan:
    """Return the plan without this group, not checked. Unprocessable when it holds other groups."""
    instance_group(plan, name)
    below = [group.name for group in plan.instance_groups if group.parent == name]
    if below:
        raise Unprocessable(
            f"The instance group {name!r} holds others: {', '.join(below)}.",
            hint="Remove these first, or give them another parent.",
            field="name",
        )
    return with_instance_groups(plan, [group for group in plan.instance_groups if group.name != name])


def without_resource_group(plan: Plan, name: str) -> Plan:
    """Return the plan without this group, not checked. Unprocessable when an instance group is over it."""
    resource_group(plan, name)
    over = [group.name for group in plan.instance_groups if group.resource_group == name]
    if over:
        raise Unprocessable(
            f"The slots of the resource group {name!r} are divided by {', '.join(over)}.",
            hint="Remove these instance groups first, or move them to another resource group.",
            field="name",
        )
    return with_resource_groups(plan, [group for group in plan.resource_groups if group.name != name])


def _find(groups: Sequence[Named], name: str, what: str) -> Named:
    for group in groups:
        if group.name == name:
            return group
    raise NotFound(
        f"There is no {what} {name!r}.", hint=f"There are: {', '.join(group.name for group in groups)}.", field="name"
    )


def _changed(groups: Sequence[Named], name: str, what: str, changes: Mapping[str, Any]) -> list[Named]:
    """Return the groups with these fields of the named group changed."""
    old = _find(groups, name, what)
    if changes.get("name", name) != name:
        raise Unprocessable(
            f"A group keeps its name; {name!r} cannot become {changes['name']!r}.",
            hint="Create another, move the jobs there, and remove this one.",
            field="name",
        )
    new = convert_change({**msgspec.to_builtins(old), **changes}, type(old))
    return [new if group.name == name else group for group in groups]
