"""What the core is told, and how that is kept as a row of the event list.

The store keeps kind and JSON data (`edt_sdk.schemas.events`); the core takes structs. `to_data` and `from_data` are
each other's inverse. Data may carry further keys for people (`owner`, `before`, …): the core never reads them, so what
it decides depends on its inputs alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.control import Slot
from edt_sdk.schemas.events import Event


class SlotsChanged(msgspec.Struct, frozen=True, tag=True):
    """All slots of the resource group from now on; slots that are missing here are revoked."""

    slots: tuple[Slot, ...]


class JobArrived(msgspec.Struct, frozen=True, tag=True):
    """A new job. It asks for one slot, to start on, until its first JobDemand."""

    job: str
    priority: int
    max_workers: int
    instance_group: str


class JobDemand(msgspec.Struct, frozen=True, tag=True):
    """How many slots the job's training can use (its shards), 0 between trainings."""

    job: str
    demand: int


class JobChanged(msgspec.Struct, frozen=True, tag=True):
    """The job's settings from now on; None leaves one as it is."""

    job: str
    priority: int | None = None
    max_workers: int | None = None
    instance_group: str | None = None


class JobGone(msgspec.Struct, frozen=True, tag=True):
    """The job has ended and its processes are gone: everything it held is free."""

    job: str


class JobSuspended(msgspec.Struct, frozen=True, tag=True):
    """The job asks for no slot, whatever its training could use, until its JobResumed. It keeps its place in order."""

    job: str


class JobResumed(msgspec.Struct, frozen=True, tag=True):
    """The job asks again for what it could use."""

    job: str


class SlotReleased(msgspec.Struct, frozen=True, tag=True):
    """The job's worker in this slot is gone. A slot that was not revoked may be granted again at once."""

    job: str
    slot: int


CoreEvent = SlotsChanged | JobArrived | JobDemand | JobChanged | JobSuspended | JobResumed | JobGone | SlotReleased

_BY_KIND: dict[str, type[CoreEvent]] = {
    kinds.SLOTS_CHANGED: SlotsChanged,
    kinds.JOB_ARRIVED: JobArrived,
    kinds.JOB_DEMAND: JobDemand,
    kinds.JOB_CHANGED: JobChanged,
    kinds.JOB_SUSPENDED: JobSuspended,
    kinds.JOB_RESUMED: JobResumed,
    kinds.JOB_GONE: JobGone,
    kinds.SLOT_RELEASED: SlotReleased,
}
_KIND = {cls: kind for kind, cls in _BY_KIND.items()}


def kind_of(event: CoreEvent) -> str:
    """The event's kind in the event list."""
    return _KIND[type(event)]


def to_data(event: CoreEvent) -> dict[str, Any]:
    """The event as a JSON object, job included, kind not."""
    data: dict[str, Any] = msgspec.to_builtins(event)
    del data["type"]  # the row's kind says it already
    return data


def from_data(kind: str, data: dict[str, Any]) -> CoreEvent:
    """The event a row stands for.

    Raises:
        KeyError: `kind` is no input of the core.
        msgspec.ValidationError: the data does not fit the kind, with the path of the wrong field.
    """
    return msgspec.convert(data, _BY_KIND[kind])


def inputs(events: Iterable[Event]) -> list[tuple[CoreEvent, float]]:
    """The core's inputs among rows of the event list, in their order, ready for `Core.replay`."""
    return [(from_data(event.kind, event.data), event.time) for event in events if event.kind in kinds.INPUTS]
