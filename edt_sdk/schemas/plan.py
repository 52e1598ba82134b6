"""Describe how the slots are shared: resource groups, each with a tree of instance groups. An administrator sets it.

A `Plan` is one value, checked as a whole and changed as a whole. The scheduling core gets it as an input like
any other. Names follow WMLA: ownership, share ratio, borrowing, lending, reclaiming.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.job import DEFAULT_INSTANCE_GROUP, MOST_PRIORITY, Priority, Seconds, parse_change

POLICIES = ("fairshare", "priority", "fifo")
DEFAULT_RESOURCE_GROUP = "default"
MOST_SHARE = 10**6
MAX_PRIORITY = 10_000
# The quotas of an instance group. Those of slots and running jobs let jobs wait, the others refuse a submission.
QUOTAS = ("max_waiting", "max_running", "max_bytes", "user_waiting", "user_running", "user_slots", "user_bytes")

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,98}[A-Za-z0-9._-])?\Z")
_FORMULA = re.compile(
    r"(?:(?P<of>ngpus|ncpus)(?:\s*(?P<sign>[*/])\s*(?P<by>[1-9][0-9]{0,5}))?|(?P<number>[0-9]{1,6}))\Z"
)
# What torch, oneDNN and MKL read when they are loaded. They then add in the order of the lowest instructions, in which
# processors agree. Each of the three changes bits by itself (docs/decisions/066).
PORTABLE = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
SlotCount = Annotated[int, Meta(extra_json_schema={"minimum": 0})]
Quota = Annotated[int, Meta(extra_json_schema={"minimum": 1})]
GroupName = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 100})]
Named = TypeVar("Named", "ResourceGroup", "InstanceGroup")


class ResourceGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts and how many slots each of them offers.

    Attributes:
        name: what instance groups call it.
        hosts: names of its hosts, empty for every host that no other resource group names.
        slots: of each host: "ngpus", "ncpus", one of them times or divided by a whole number ("ncpus/2"), or a number.
            "" for what the host offers by itself (one slot a GPU, else one a CPU share).
        portable: its jobs use only instructions that all processors have. They are slower, and may be on hosts whose
            processors differ.
    """

    name: GroupName
    hosts: tuple[str, ...] = ()
    slots: str = ""
    portable: bool = False

    def check(self) -> ResourceGroup:
        """Return self, or raise Unprocessable."""
        _check_name(self.name, "resource group")
        if not all(map(str.strip, self.hosts)):
            raise Unprocessable(f"A host of the resource group {self.name!r} has no name.", field="hosts")
        if self.slots:
            slots_by_formula(self.slots, 0, 0)
        return self


class InstanceGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One queue, or an inner node of the tree that holds other groups and no jobs.

    Attributes:
        name: what jobs call it.
        resource_group: the resource group with the slots it divides. A child is in its parent's.
        parent: name of the group above it, "" for none.
        policy: how its jobs divide what it has. "fairshare": weight = priority, Webster's divisor rule. "priority":
            strictly the higher first, then the earlier. "fifo": strictly the earlier first.
        preemption: slots above a job's entitlement are taken back at the next update. Off: when it gives them up.
        share: weight against its siblings for slots without an owner and for lent slots, ≥ 1.
        own: number of slots that are its own whenever it can use them.
        lend: most of its own slots that others may use while it does not. None for all.
        borrow: most slots it may use beyond its own. None for no limit.
        user_shares: owner of jobs → weight, as a level between the group and its jobs. "*" for all others (1 where
            it is missing). None for no such level.
        throughput_aware: divide by measured speed: a slot goes where it speeds up most.
        quantum: seconds a job runs at least before one that waits takes its turn, when there are more jobs than slots.
        pending_timeout: seconds after which a job that has never got a slot ends with ERROR. None for never.
        max_priority: the highest priority of a job here. Only an admin may exceed it.
        max_waiting, user_waiting: most jobs without a slot, suspended ones included, of all users and of one user. A
            submission above it is refused. None for no quota, as for all that follow.
        max_running, user_running: most jobs with slots at once, of all users and of one user. More jobs wait.
        user_slots: most slots of one user's jobs. The group is then divided among its users first, as by `user_shares`.
        max_bytes, user_bytes: most bytes that its jobs have stored, of all users and of one user. A submission above it
            is refused.
    """

    name: GroupName
    resource_group: str = DEFAULT_RESOURCE_GROUP
    parent: str = ""
    policy: Annotated[str, Meta(extra_json_schema={"enum": list(POLICIES)})] = "fairshare"
    preemption: bool = True
    share: Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": MOST_SHARE})] = 1
    own: SlotCount = 0
    lend: SlotCount | None = None
    borrow: SlotCount | None = None
    user_shares: dict[str, int] | None = None
    throughput_aware: bool = False
    quantum: Seconds = 60.0
    pending_timeout: Seconds | None = None
    max_priority: Priority = MAX_PRIORITY
    max_waiting: Quota | None = None
    max_running: Quota | None = None
    max_bytes: Quota | None = None
    user_waiting: Quota | None = None
    user_running: Quota | None = None
    user_slots: Quota | None = None
    user_bytes: Quota | None = None

    @property
    def weights_of_users(self) -> dict[str, int] | None:
        """The weights of the level between the group and its jobs. None where there is no such level."""
        return {} if self.user_shares is None and self.user_slots is not None else self.user_shares

    @property
    def limits_running(self) -> bool:
        """True when it has a quota of running jobs."""
        return self.max_running is not None or self.user_running is not None

    def check(self) -> InstanceGroup:
        """Return self, or raise Unprocessable."""
        _check_name(self.name, "instance group")
        if self.policy not in POLICIES:
            raise self._wrong("policy", f"is one of {', '.join(POLICIES)}, not {self.policy!r}")
        if not 1 <= self.share <= MOST_SHARE:
            raise self._wrong("share", f"must lie in 1 … {MOST_SHARE}, not {self.share}")
        for field, value in (("own", self.own), ("lend", self.lend), ("borrow", self.borrow)):
            if value is not None and value < 0:
                raise self._wrong(field, f"is a number of slots and cannot be {value}")
        for user, share in (self.user_shares or {}).items():
            if not user or not 1 <= share <= MOST_SHARE:
                raise self._wrong("user_shares", f"must lie in 1 … {MOST_SHARE}; it is {share} for {user!r}")
        # A comparison with both ends also refuses NaN.
        if not 0 < self.quantum < float("inf"):
            raise self._wrong("quantum", f"is a number of seconds above 0, not {self.quantum}")
        if self.pending_timeout is not None and not 0 < self.pending_timeout < float("inf"):
            raise self._wrong("pending_timeout", f"is a number of seconds above 0, not {self.pending_timeout}")
        for field in QUOTAS:
            if (quota := getattr(self, field)) is not None and quota < 1:
                raise self._wrong(field, f"is at least 1, or null for no quota, not {quota}")
        if not 1 <= self.max_priority <= MOST_PRIORITY:
            raise self._wrong("max_priority", f"must lie in 1 … {MOST_PRIORITY}, not {self.max_priority}")
        if self.throughput_aware and self.policy != "fairshare":
            raise self._wrong("throughput_aware", "needs policy fairshare")
        return self

    def check_priority(self, priority: int) -> None:
        """Raise Unprocessable unless a user who is no admin may give a job here that priority."""
        if priority > self.max_priority:
            raise Unprocessable(
                f"priority is at most {self.max_priority} in the instance group {self.name!r}, not {priority}.",
                hint="Only an admin of the server may exceed it, or raise the group's max_priority.",
                field="priority",
            )

    def _wrong(self, field: str, what: str) -> Unprocessable:
        return Unprocessable(f"{field} of the instance group {self.name!r} {what}.", field=field)


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All groups. The first instance group without children is the default for jobs that name none."""

    resource_groups: tuple[ResourceGroup, ...] = (ResourceGroup(name=DEFAULT_RESOURCE_GROUP),)
    instance_groups: tuple[InstanceGroup, ...] = (InstanceGroup(name=DEFAULT_INSTANCE_GROUP),)

    def check(self) -> Plan:
        """Return self, or raise Unprocessable: names, numbers, formulas, hosts in two groups, a cycle of parents."""
        groups = _by_name([group.check() for group in self.instance_groups], "instance group")
        resources = _by_name([group.check() for group in self.resource_groups], "resource group")
        if not groups or not resources:
            raise Unprocessable("A plan needs a resource group and an instance group.", field="instance_groups")
        self._check_hosts()
        for group in groups.values():
            _check_parents(group, groups)
            if group.user_shares is not None and any(each.parent == group.name for each in groups.values()):
                raise Unprocessable(
                    f"The instance group {group.name!r} holds other groups: it is divided among them, not among users.",
                    hint="Give user_shares to the groups in it.",
                    field="user_shares",
                )
            quota = next((field for field in QUOTAS if getattr(group, field) is not None), None)
            if quota is not None and any(each.parent == group.name for each in groups.values()):
                raise Unprocessable(
                    f"The instance group {group.name!r} holds other groups and no jobs, so it cannot have {quota}.",
                    hint="Give the quotas to the groups in it.",
                    field=quota,
                )
            if group.resource_group not in resources:
                raise Unprocessable(
                    f"The instance group {group.name!r} is over {group.resource_group!r}, which is no resource group.",
                    hint=f"Choose one of: {', '.join(resources)}.",
                    field="resource_group",
                )
        return self

    def leaves(self) -> tuple[InstanceGroup, ...]:
        """Return the groups that jobs may be in."""
        parents = {group.parent for group in self.instance_groups}
        return tuple(group for group in self.instance_groups if group.name not in parents)

    def group(self, name: str) -> InstanceGroup:
        """Return the group with that name, "" for the first, or raise Unprocessable unless jobs may be in it."""
        if not name:
            return self.leaves()[0]
        for group in self.leaves():
            if group.name == name:
                return group
        inner = any(group.name == name for group in self.instance_groups)
        raise Unprocessable(
            f"The instance group {name!r} holds other groups, and no jobs."
            if inner
            else f"There is no instance group {name!r}.",
            hint=f"Choose one of: {', '.join(group.name for group in self.leaves())}.",
            field="instance_group",
        )

    def portable(self, group: InstanceGroup, env: Mapping[str, str]) -> bool:
        """Return whether the jobs of an instance group are portable: their processes start with PORTABLE.

        Unprocessable where the job's own `env` asks for other instructions.
        """
        found = any(each.portable for each in self.resource_groups if each.name == group.resource_group)
        wrong = [name for name, value in PORTABLE.items() if env.get(name, value) != value]
        if found and wrong:
            raise Unprocessable(
                f"The job's env sets {wrong[0]}, and its resource group {group.resource_group!r} is portable: "
                "there the server chooses the instructions.",
                hint="Leave it out, or submit the job to an instance group over other hosts.",
                field="env",
            )
        return found

    def _check_hosts(self) -> None:
        """Check that every host is in one group: one group without hosts takes the rest."""
        seen: dict[str, str] = {}
        rest = [group.name for group in self.resource_groups if not group.hosts]
        # Two groups that take the rest would both claim each new host.
        if len(rest) > 1:
            raise Unprocessable(
                f"The resource groups {rest[0]!r} and {rest[1]!r} both take every host that no other names.",
                hint="Name the hosts of one of them.",
                field="hosts",
            )
        for group in self.resource_groups:
            for host in group.hosts:
                if host in seen:
                    raise Unprocessable(
                        f"The host {host!r} is in the resource groups {seen[host]!r} and {group.name!r}."
                        if seen[host] != group.name
                        else f"The host {host!r} is in the resource group {group.name!r} twice.",
                        hint="A host belongs to one resource group.",
                        field="hosts",
                    )
                seen[host] = group.name


class PlanAsRead(Plan, frozen=True, kw_only=True, forbid_unknown_fields=True, eq=False):
    """A plan with the version it was read in. Equal to a plan of the same groups, whatever its version.

    Attributes:
        version: the server's version of this plan, "" when unknown.
    """

    version: str = ""

    @property
    def plan(self) -> Plan:
        """The same without its version."""
        return Plan(resource_groups=self.resource_groups, instance_groups=self.instance_groups)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return (self.resource_groups, self.instance_groups) == (other.resource_groups, other.instance_groups)


class QuotaUse(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one quota of an instance group is used.

    Attributes:
        instance_group: the group.
        quota: its field in the plan. Those that begin with `user` are for each user, the others for all together.
        used: jobs, slots or bytes in use: of the user who asks, or of all users.
        limit: the most that may be used.
        near: four fifths of it, or more, are used.
        text: the same in a sentence.
    """

    instance_group: str
    quota: Annotated[str, Meta(extra_json_schema={"enum": list(QUOTAS)})]
    used: int
    limit: int
    near: bool
    text: str


def parse_plan(data: bytes | str) -> Plan:
    """Return a checked Plan from JSON. Raises as `parse_change`."""
    return parse_change(data, Plan).check()


def slots_by_formula(formula: str, gpus: int, cpus: int) -> int:
    """Return how many slots a host offers by the formula, or raise Unprocessable when it is no formula."""
    found = _FORMULA.match(formula.strip())
    if found is None:
        raise Unprocessable(
            f"{formula!r} is no formula for slots.",
            hint="Write a number, ngpus, ncpus, or one of these with * or / and a whole number, such as ncpus/2.",
            field="slots",
        )
    if found["number"] is not None:
        return int(found["number"])
    base = gpus if found["of"] == "ngpus" else cpus
    by = int(found["by"] or 1)
    return base // by if found["sign"] == "/" else base * by


def _check_name(name: str, what: str) -> None:
    if not _NAME.match(name):
        raise Unprocessable(
            f"{name!r} cannot be the name of a {what}.",
            hint="Use 1 to 100 letters, digits, blanks, dots, dashes or underscores, the first a letter or digit.",
            field="name",
        )


def _by_name(items: Sequence[Named], what: str) -> dict[str, Named]:
    found: dict[str, Named] = {}
    for item in items:
        if item.name in found:
            raise Unprocessable(f"Two {what}s have the name {item.name!r}.", field="name")
        found[item.name] = item
    return found


def _check_parents(group: InstanceGroup, groups: dict[str, InstanceGroup]) -> None:
    path = [group.name]
    while groups[path[-1]].parent:
        parent = groups[path[-1]].parent
        if parent not in groups:
            raise Unprocessable(
                f"The parent of the instance group {path[-1]!r}, {parent!r}, does not exist.", field="parent"
            )
        # The walk up meets a name again exactly where parents form a cycle. Without this check it would not end.
        if parent in path:
            raise Unprocessable(
                f"The instance groups {' → '.join([*path, parent])} are each other's parents.",
                hint="A group's parents must end at one without a parent.",
                field="parent",
            )
        # A child divides slots of its parent, and these are in one resource group.
        if groups[parent].resource_group != group.resource_group:
            raise Unprocessable(
                f"The instance group {group.name!r} and its parent {parent!r} are over different resource groups.",
                field="resource_group",
            )
        path.append(parent)
