"""A job without a slot waits, and a job that has slots and could use others wants more: a group counts both apart."""

from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import JobArrived, JobDemand, SlotReleased, SlotsChanged
from edt_server.service.cluster import standing


def test_waiting_and_wanting_more_are_two_things():
    core = Core()
    events = [SlotsChanged(tuple(Slot(id=number, host="h") for number in range(2)))]
    for job in "abc":
        events += [JobArrived(job, 5000, 4, "default"), JobDemand(job, 4)]
    for now, event in enumerate(events):
        core.apply(event, float(now))
        for job in core.jobs:
            for slot in core.leaving(job):
                core.apply(SlotReleased(job, slot), float(now))
    (group,) = standing(core)["groups"]
    assert (group["waiting"], group["wanting"], group["jobs"]) == (["c"], ["a", "b"], 3)
