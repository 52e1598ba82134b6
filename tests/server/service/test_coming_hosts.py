"""The sentence about hosts on their way, on the reasons that a real core gives."""

import pytest

from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import JobArrived, JobDemand, JobSuspended, SlotsChanged
from edt_server.service.coming_hosts import ComingHosts, with_hosts

RAY = ComingHosts("1 host was asked of ray 40 s ago; such hosts took 90 s (median of 5)", expected=150.0, room=8)
SLURM = ComingHosts("the provider slurm has given all 4 hosts it may (max_hosts)")


def core(slots, *jobs, **group):
    """A core with so many slots and these jobs, name → fields of their arrival, which train already."""
    made = Core(Plan(instance_groups=(InstanceGroup(name="default", preemption=False, **group),)))
    made.apply(SlotsChanged(tuple(Slot(id=number, host="h") for number in range(slots))), 0.0)
    for name, fields in jobs:
        made.apply(JobArrived(name, 5000, instance_group="default", **{"max_workers": 9, **fields}), 0.0)
        made.apply(JobDemand(name, 9), 0.0)
    return made


def test_a_job_that_waits_hears_of_the_hosts_and_when_the_first_should_come():
    before = core(1, ("a", {}), ("b", {})).reason("b", now=100.0, ends={"a": (200.0, 300.0)})
    after = with_hosts(before, [SLURM, RAY])
    assert before.code == after.code == "busy"
    assert after.text == (
        f"{before.text} The provider slurm has given all 4 hosts it may (max_hosts). 1 host was asked of ray 40 s ago; "
        "such hosts took 90 s (median of 5)."
    )
    assert before.numbers["forecast"] == {"earliest": 200.0, "latest": 300.0}
    assert after.numbers["forecast"] == {"earliest": 150.0, "latest": 300.0}


def test_without_a_forecast_the_host_gives_one_without_a_latest_time():
    before = core(1, ("a", {}), ("b", {})).reason("b", now=100.0)
    assert with_hosts(before, [RAY]).numbers["forecast"] == {"earliest": 150.0, "latest": None}
    assert "forecast" not in with_hosts(before, [SLURM]).numbers


def test_a_job_that_has_every_slot_hears_of_more():
    found = with_hosts(core(2, ("a", {})).reason("a"), [RAY])
    assert found.code == "capped"
    assert found.text.endswith("(median of 5).")


@pytest.mark.parametrize(
    ("slots", "needed", "code", "text"),
    [
        (2, 10, "busy", "It needs 10 slots at once, and its resource group has 2. 1 host was asked"),
        (2, 11, "never_fits", "can never have"),
        (0, 1, "busy", "It needs 1 slot at once, and its resource group has none yet. 1 host was asked"),
        (0, 9, "never_fits", "There are no slots on this server"),
    ],
)
def test_a_job_that_fits_nowhere_waits_for_hosts_that_could_come(slots, needed, code, text):
    before = core(slots, ("a", {"min_workers": needed, "max_workers": 12})).reason("a")
    assert before.code == "never_fits"
    found = with_hosts(before, [RAY])
    assert (found.code, text in found.text) == (code, True)


def test_hosts_are_no_help_against_the_plan():
    limited = core(4, ("a", {}), borrow=2).reason("a")
    assert limited.code == "limit"
    never = core(4, ("a", {"min_workers": 3}), borrow=2).reason("a")
    assert never.code == "never_fits"
    suspended = core(4, ("a", {}))
    suspended.apply(JobSuspended("a"), 1.0)
    for reason in (limited, never, suspended.reason("a")):
        assert with_hosts(reason, [RAY]) is reason


def test_nothing_to_tell():
    busy = core(1, ("a", {}), ("b", {})).reason("b")
    assert with_hosts(busy, []) is busy
    assert with_hosts(busy, [ComingHosts(room=8)]) is busy
    assert with_hosts(None, [RAY]) is None
