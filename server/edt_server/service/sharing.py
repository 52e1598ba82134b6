"""The plan as a resource: read it, change it as a whole or one group of it, and fit the slots to it.

Every change has one form: a new plan is made from the present one, checked as a whole, committed as an input of the
core, together with the slots that it makes of the hosts. So a change that is wrong anywhere changes nothing, and it
counts at once for the jobs that run. Only an admin may change the plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.errors import ChangedMeanwhile, Conflict, NotFound, Unprocessable
from edt_sdk.schemas.job import convert_change
from edt_sdk.schemas.plan import InstanceGroup, Named, Plan, ResourceGroup
from edt_server.core.events import PlanChanged, SlotsChanged
from edt_server.ledger import Change, LedgerWriter
from edt_server.service import access
from edt_server.system.device_claims import DeviceClaims
from edt_server.system.slots import Host, plan_slots

_FIELDS: Mapping[Any, str] = {InstanceGroup: "instance_groups", ResourceGroup: "resource_groups"}


@dataclass(slots=True)
class Sharing:
    """The plan of a service. Slots of devices that other stores' jobs use now are not offered."""

    _writer: LedgerWriter
    _claims: DeviceClaims
    _admins: Set[str] | None = None
    _hosts: tuple[Host, ...] = ()

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

        await self._writer.change(work)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Return the hosts that are there now."""
        return self._hosts

    async def look_again(self) -> None:
        """Fit the slots to the devices that are free of other stores now."""
        await self._writer.change(self._fit)

    @property
    def has_gpus(self) -> bool:
        """Return True when a host has devices that another store could use."""
        return any(host.gpus for host in self._hosts)

    def _fit(self, change: Change, *, cause: int | None = None) -> None:
        elsewhere = self._claims.elsewhere()
        slots = plan_slots(change.core.plan, self._hosts, change.core.slots)
        # Two stores on one host must never offer the same GPU.
        slots = tuple(slot for slot in slots if slot.device not in elsewhere)
        if slots != change.core.slots:
            change.apply(SlotsChanged(slots), cause=cause)

    @property
    def plan(self) -> Plan:
        """Return how the slots are shared now."""
        return self._writer.ledger.core.plan

    # --- verbs, NotAllowed for a user who is no admin -----------------------------------------------------------------

    async def set_plan(self, user: str, plan: Plan, *, made_from: str | None = None) -> Plan:
        """Replace the plan. Unprocessable when the new one cannot be used, or has no place for a present job.

        ChangedMeanwhile when the present plan is not of the `version` in `made_from`. None replaces any plan.
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

    async def add(self, user: str, group: Named) -> Named:
        """Add an instance group or a resource group. Unprocessable when it cannot be."""

        def edit(plan: Plan) -> Plan:
            return _with(plan, type(group), [*_all(plan, type(group)), group])

        return find_group(await self._edit(user, edit), type(group), group.name)

    async def change(self, user: str, kind: type[Named], name: str, changes: Mapping[str, Any]) -> Named:
        """Change fields of a group. NotFound, or Unprocessable when they cannot be so."""

        def edit(plan: Plan) -> Plan:
            old = find_group(plan, kind, name)
            if changes.get("name", name) != name:
                raise Unprocessable(
                    f"A group keeps its name; {name!r} cannot become {changes['name']!r}.",
                    hint="Create another, move the jobs there, and remove this one.",
                    field="name",
                )
            new = convert_change({**msgspec.to_builtins(old), **changes}, kind)
            return _with(plan, kind, [new if group.name == name else group for group in _all(plan, kind)])

        return find_group(await self._edit(user, edit), kind, name)

    async def remove(self, user: str, kind: type[Named], name: str) -> None:
        """Remove a group. NotFound, or Unprocessable while it is in use."""

        def edit(plan: Plan) -> Plan:
            find_group(plan, kind, name)
            _check_unused(plan, kind, name)
            return _with(plan, kind, [group for group in _all(plan, kind) if group.name != name])

        await self._edit(user, edit)

    async def _edit(self, user: str, edit: Callable[[Plan], Plan]) -> Plan:
        access.check_admin(user, self._admins)

        def work(change: Change) -> Plan:
            before = change.core.plan
            after = edit(before).check()
            if after != before:
                _check_portable(change, before, after)
                seq = change.apply(PlanChanged(after), before=msgspec.to_builtins(before), by=user)
                self._fit(change, cause=seq)
            return after

        return await self._writer.change(work)


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


def find_group(plan: Plan, kind: type[Named], name: str) -> Named:
    """Return the instance group (leaf or not) or resource group of that name. NotFound when there is none."""
    groups = _all(plan, kind)
    for group in groups:
        if group.name == name:
            return group
    raise NotFound(
        f"There is no {'instance' if kind is InstanceGroup else 'resource'} group {name!r}.",
        hint=f"There are: {', '.join(group.name for group in groups)}.",
        field="name",
    )


def _all(plan: Plan, kind: type[Named]) -> tuple[Named, ...]:
    found: tuple[Named, ...] = getattr(plan, _FIELDS[kind])
    return found


def _with(plan: Plan, kind: type[Any], groups: Sequence[Any]) -> Plan:
    """Return the plan with these groups of that kind, not checked."""
    return msgspec.structs.replace(plan, **{_FIELDS[kind]: tuple(groups)})


def _check_portable(change: Change, before: Plan, after: Plan) -> None:
    """Raise Conflict where processes of jobs run that have started with, or without, the variables of portable jobs."""
    groups = [{group.name: plan.portable(group, {}) for group in plan.leaves()} for plan in (before, after)]
    jobs = [
        job
        for job in change.core.jobs
        if (name := change.core.group_of(job).name) in groups[1]
        and groups[0][name] != groups[1][name]
        and change.row(job).supervised
    ]
    if jobs:
        raise Conflict(
            f"Whether a resource group is portable counts for jobs when they start, and these run: {', '.join(jobs)}.",
            hint="Stop them, make the change, and resume them. They are marked as not exact then.",
            field="portable",
        )


def _check_unused(plan: Plan, kind: type[Named], name: str) -> None:
    """Raise Unprocessable when other groups need this group."""
    if kind is InstanceGroup:
        if below := [group.name for group in plan.instance_groups if group.parent == name]:
            raise Unprocessable(
                f"The instance group {name!r} holds others: {', '.join(below)}.",
                hint="Remove these first, or give them another parent.",
                field="name",
            )
    elif over := [group.name for group in plan.instance_groups if group.resource_group == name]:
        raise Unprocessable(
            f"The slots of the resource group {name!r} are divided by {', '.join(over)}.",
            hint="Remove these instance groups first, or move them to another resource group.",
            field="name",
        )
