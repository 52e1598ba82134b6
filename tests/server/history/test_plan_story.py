"""What changed in the plan is told field by field."""

from __future__ import annotations

import msgspec
import pytest

from edt_sdk.schemas.events import PLAN_CHANGED, SLOT_REVOKED, Event
from edt_sdk.schemas.plan import InstanceGroup, Plan, ResourceGroup
from edt_server.history.story import describe, plan_changes


def plan(*groups, resources=({"name": "default"},)):
    made = Plan(
        instance_groups=tuple(InstanceGroup(**group) for group in groups or ({"name": "day"},)),
        resource_groups=tuple(ResourceGroup(**resource) for resource in resources),
    )
    return msgspec.to_builtins(made)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (plan(), plan(), []),
        (plan(), plan({"name": "day", "share": 3}), ["share of the instance group day is 3 (was 1)"]),
        (
            plan({"name": "day", "lend": 2}),
            plan({"name": "day", "preemption": False, "user_shares": {"ann": 2, "*": 1}}),
            [
                "preemption of the instance group day is off (was on)",
                "lend of the instance group day is not set (was 2)",
                "user_shares of the instance group day is ann=2, *=1 (was not set)",
            ],
        ),
        (plan(), plan({"name": "night"}), ["the instance group night is new", "the instance group day was removed"]),
        (
            plan(),
            plan(resources=({"name": "default", "hosts": ("a", "b"), "slots": "2"},)),
            [
                "hosts of the resource group default is a, b (was all the others)",
                "slots of the resource group default is 2 (was not set)",
            ],
        ),
        (
            plan({"name": "day"}, {"name": "night"}),
            plan({"name": "night"}, {"name": "day"}),
            ["the order of the instance groups is another one"],
        ),
    ],
)
def test_what_is_told(before, after, told):
    assert plan_changes(before, after) == told


def test_in_the_story_of_the_machine_and_of_a_job():
    data = {"plan": plan({"name": "day", "own": 2}), "before": plan(), "by": "ann"}
    assert describe(PLAN_CHANGED, data) == "the plan changed (by ann): own of the instance group day is 2 (was 0)"
    assert describe(PLAN_CHANGED, {"plan": plan()}) == "the plan has 1 instance group now: day"
    cause = Event(seq=1, time=0.0, job=None, kind=PLAN_CHANGED, data=data, cause=None, text="")
    text = describe(SLOT_REVOKED, {"slot": 3, "slots": 2}, job="j", cause=cause)
    assert text == "asked to give back slot 3: own of the instance group day is 2 (was 0), entitled to 2 now"
