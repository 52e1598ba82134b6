"""Define the core's inputs, and their form as rows of the event list.

The store keeps kind and JSON data (`edt_sdk.schemas.events`), the core takes structs. `to_data` and `from_data` are
inverse to each other. Data may have further keys for people (`name`, `before`, …). The core never reads them, so its
decisions depend on its inputs alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import SCHEDULED, JobPatch
from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import Slot


class SlotsChanged(msgspec.Struct, frozen=True, tag=True):
    """The event lists all slots from now on. Slots that are missing here are revoked."""

    slots: tuple[Slot, ...]


class PlanChanged(msgspec.Struct, frozen=True, tag=True):
    """The plan has been replaced by this one."""

    plan: Plan


class TimePassed(msgspec.Struct, frozen=True, tag=True):
    """Time has passed: turns end, and jobs that waited too long are given up."""


class JobArrived(msgspec.Struct, frozen=True, tag=True):
    """A new job has arrived. It asks for `demand`, or its least size, until its first JobDemand.

    Attributes:
        priority: weight, see `InstanceGroup.policy`.
        owner: for groups that divide among users.
        min_workers: the fewest workers it runs on.
        slots_per_unit: slots are given and taken in multiples of this.
        pending_timeout: seconds after which it is given up if it never got a slot. None for its group's timeout.
        rigid: it would restart from the beginning without one of its slots: no slot is taken while it has them all.
        demand: slots it can use before its first JobDemand. A job that never sends one can use any number at once.
        search: id of the search that it is a trial of. The trials of a search claim slots as one job.
    """

    job: str
    priority: int
    max_workers: int
    instance_group: str
    owner: str = ""
    min_workers: int = 1
    slots_per_unit: int = 1
    pending_timeout: float | None = None
    rigid: bool = False
    demand: int = 1
    search: str = ""


class JobDemand(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The job's training can use `demand` slots now (its shards), 0 between trainings.

    Attributes:
        held: why a change of size would cost it what it has computed, in sentences. It keeps what it holds then, and
            gets more only when its maximum is changed. "" for all others.
    """

    job: str
    demand: int
    held: str = ""


class JobChanged(msgspec.Struct, frozen=True, tag=True):
    """The job's settings have changed. `JobPatch.scheduling` names those that matter here."""

    job: str
    patch: JobPatch


class JobGone(msgspec.Struct, frozen=True, tag=True):
    """The job has ended and its processes are gone: all its slots are free."""

    job: str


class JobSuspended(msgspec.Struct, frozen=True, tag=True):
    """The job asks for no slot, whatever its training could use, until its JobResumed. It keeps its arrival number."""

    job: str


class JobResumed(msgspec.Struct, frozen=True, tag=True):
    """The job asks for slots again."""

    job: str


class JobBudget(msgspec.Struct, frozen=True, tag=True):
    """The job's trainings may go on to the end of epoch `budget`, None for no bound. One that holds there goes on."""

    job: str
    budget: int | None


class JobHeld(msgspec.Struct, frozen=True, tag=True):
    """The job's training waits after `epoch` of its `epochs` epochs. Until it has more budget it asks for no slot.

    It changes nothing if the budget was raised in the meantime.
    """

    job: str
    epoch: int
    epochs: int


class JobApart(msgspec.Struct, frozen=True, tag=True):
    """The job may have no slots of these `hosts` from now on, for the reason `why`, a sentence. No hosts lift it."""

    job: str
    hosts: tuple[str, ...]
    why: str


class SlotReleased(msgspec.Struct, frozen=True, tag=True):
    """The job's worker in this slot is gone. A slot that was not revoked may be granted again at once."""

    job: str
    slot: int


class SpeedMeasured(msgspec.Struct, frozen=True, tag=True):
    """The job's speed was measured: slots → samples a second. It replaces all earlier measurements."""

    job: str
    speeds: dict[int, float]


CoreEvent = (
    SlotsChanged
    | PlanChanged
    | TimePassed
    | JobArrived
    | JobDemand
    | JobChanged
    | JobSuspended
    | JobResumed
    | JobBudget
    | JobHeld
    | JobApart
    | JobGone
    | SlotReleased
    | SpeedMeasured
)

_BY_KIND: dict[str, type[CoreEvent]] = {
    kinds.SLOTS_CHANGED: SlotsChanged,
    kinds.PLAN_CHANGED: PlanChanged,
    kinds.TIME_PASSED: TimePassed,
    kinds.JOB_ARRIVED: JobArrived,
    kinds.JOB_DEMAND: JobDemand,
    kinds.JOB_CHANGED: JobChanged,
    kinds.JOB_SUSPENDED: JobSuspended,
    kinds.JOB_RESUMED: JobResumed,
    kinds.JOB_BUDGET: JobBudget,
    kinds.JOB_HELD: JobHeld,
    kinds.JOB_APART: JobApart,
    kinds.JOB_GONE: JobGone,
    kinds.SLOT_RELEASED: SlotReleased,
    kinds.SPEED_MEASURED: SpeedMeasured,
}
_KIND = {cls: kind for kind, cls in _BY_KIND.items()}


def kind_of(event: CoreEvent) -> str:
    """Return the event's kind in the event list."""
    return _KIND[type(event)]


def to_data(event: CoreEvent) -> dict[str, Any]:
    """Return the event as a JSON object, job included, kind not."""
    data: dict[str, Any] = msgspec.to_builtins(event, str_keys=True)
    del data["type"]  # the row has the kind
    if isinstance(event, JobChanged):  # rows are flat, as they were before the settings were one struct
        patch = data.pop("patch")
        data |= {name: patch[name] for name in SCHEDULED}
    return data


def from_data(kind: str, data: dict[str, Any]) -> CoreEvent:
    """Return the event of a row. KeyError for a kind that is no input, msgspec.ValidationError for data of another."""
    if kind == kinds.JOB_CHANGED:
        data = {**data, "patch": {name: data[name] for name in SCHEDULED if name in data}}
    return msgspec.convert(data, _BY_KIND[kind], str_keys=True)


def inputs(events: Iterable[Event]) -> list[tuple[CoreEvent, float]]:
    """Return the core's inputs among rows of the event list, in their order, ready for `Core.follow`."""
    return [(from_data(event.kind, event.data), event.time) for event in events if event.kind in kinds.INPUTS]
