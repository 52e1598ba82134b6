"""Events as rows and back."""

from __future__ import annotations

import json

import msgspec
import pytest

from edt_sdk.schemas import events as kinds
from edt_sdk.schemas.events import Event
from edt_sdk.schemas.job import JobPatch
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.events import (
    JobApart,
    JobArrived,
    JobBudget,
    JobChanged,
    JobDemand,
    JobGone,
    JobHeld,
    JobResumed,
    JobSuspended,
    PlanChanged,
    SlotReleased,
    SlotsChanged,
    SpeedMeasured,
    TimePassed,
    from_data,
    inputs,
    kind_of,
    to_data,
)
from edt_server.core.instructions import Grant, Revoke, to_event

ALL = [
    SlotsChanged((Slot(id=0, host="h"), Slot(id=1, host="h", device="cuda:1"))),
    JobArrived("a", 5000, 4, "default"),
    JobDemand("a", 8),
    JobChanged("a", JobPatch(priority=10000)),
    JobChanged("a", JobPatch(max_workers=3, instance_group="night")),
    JobSuspended("a"),
    JobResumed("a"),
    JobBudget("a", 3),
    JobBudget("a", None),
    JobHeld("a", 3, 27),
    JobApart("a", ("h",), "Hosts g and h do not reach each other."),
    JobGone("a"),
    SlotReleased("a", 3),
    JobArrived("a", 5000, 4, "default", owner="ana", min_workers=2, slots_per_unit=2, pending_timeout=60.0),
    PlanChanged(Plan(instance_groups=(InstanceGroup(name="day", own=2), InstanceGroup(name="night", share=3)))),
    TimePassed(),
    SpeedMeasured("a", {1: 10.5, 4: 38.0}),
]


@pytest.mark.parametrize("event", ALL, ids=lambda event: type(event).__name__)
def test_an_event_survives_its_row(event):
    data = json.loads(json.dumps(to_data(event)))
    assert "type" not in data
    assert from_data(kind_of(event), data) == event


def test_every_input_has_its_struct():
    assert {kind_of(event) for event in ALL} == kinds.INPUTS


def test_keys_for_people_are_not_read():
    data = {"job": "a", "priority": 6000, "max_workers": 4, "instance_group": "default", "name": "digits"}
    assert from_data("job_arrived", data) == JobArrived("a", 6000, 4, "default")


def test_a_change_has_the_flat_row_of_earlier_releases():
    row = {"job": "a", "priority": 8000, "max_workers": None, "instance_group": None}
    assert to_data(JobChanged("a", JobPatch(priority=8000))) == row
    assert from_data("job_changed", {**row, "before": {"priority": 5000}, "by": "ana"}) == JobChanged(
        "a", JobPatch(priority=8000)
    )


def test_wrong_rows_are_refused():
    with pytest.raises(KeyError):
        from_data("generation", {})
    with pytest.raises(msgspec.ValidationError, match="demand"):
        from_data("job_demand", {"job": "a", "demand": "many"})


def test_instructions_as_rows():
    assert to_event(Grant("a", 2, 3)) == ("slot_granted", {"slot": 2, "slots": 3})
    assert to_event(Revoke("a", 2, 1)) == ("slot_revoked", {"slot": 2, "slots": 1})


def test_inputs_are_picked_out_of_the_list():
    def row(seq, kind, data):
        return Event(seq=seq, time=float(seq), job="a", kind=kind, data=data, cause=None, text="")

    rows = [row(1, "job_gone", {"job": "a"}), row(2, "state", {}), row(3, "slot_released", {"job": "a", "slot": 1})]
    assert inputs(rows) == [(JobGone("a"), 1.0), (SlotReleased("a", 1), 3.0)]
