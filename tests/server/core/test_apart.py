"""Jobs that may have no slots of some hosts, because the others of their hosts do not reach these."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import JobApart, JobArrived, JobDemand, SlotReleased, SlotsChanged
from edt_server.core.instructions import Grant, Revoke
from tests.server.core.invariants import check, replayed

WHY = "Hosts a and b do not reach each other, so it has no slot of b."


def slots(*hosts: str) -> SlotsChanged:
    return SlotsChanged(tuple(Slot(id=number, host=host) for number, host in enumerate(hosts)))


@pytest.fixture
def history():
    """Two slots each on a and on b, all of which one job holds."""
    return [slots("a", "a", "b", "b"), JobArrived("job", 5000, 8, "default"), JobDemand("job", 8)]


@pytest.fixture
def step(history):
    """A core with that history. A step checks it."""
    core = Core()

    def step(event):
        found = core.apply(event, 0.0)
        check(core)
        history.append(event)
        return found

    step.core = core
    for event in tuple(history):
        core.apply(event, 0.0)
    return step


def test_it_leaves_the_slots_there_at_once_and_says_why(step, history):
    core = step.core
    assert step(JobApart("job", ("b",), WHY)) == [Revoke("job", 2, 2), Revoke("job", 3, 2)]
    assert (core.holding("job"), core.leaving("job"), core.entitled("job")) == ((0, 1), (2, 3), 2)
    reason = core.reason("job")
    assert (reason.code, reason.text, reason.held, reason.asked) == ("apart", WHY, 2, 8)
    step(SlotReleased("job", 2))
    assert core.free() == (2,), "and gets none of them again"
    assert replayed((each, 0.0) for each in history).digest() == core.digest()
    assert Core.restored(core.state()).digest() == core.digest()


def test_another_job_gets_them(step):
    step(JobApart("job", ("b",), WHY))
    for slot in (2, 3):
        step(SlotReleased("job", slot))
    step(JobArrived("other", 5000, 8, "default"))
    step(JobDemand("other", 8))
    assert (step.core.holding("job"), step.core.holding("other")) == ((0, 1), (2, 3))


def test_it_gets_slots_of_other_hosts_and_none_of_that_one_when_it_is_back(step):
    step(JobApart("job", ("b",), WHY))
    for slot in (2, 3):
        step(SlotReleased("job", slot))
    assert step(slots("a", "a")) == []
    assert step(slots("a", "a", "b", "b", "c")) == [Grant("job", 4, 3)]


def test_it_gets_them_once_its_hosts_reach_each_other(step):
    step(JobApart("job", ("b",), WHY))
    for slot in (2, 3):
        step(SlotReleased("job", slot))
    assert step(JobApart("job", (), "")) == [Grant("job", 2, 3), Grant("job", 3, 4)]


def test_one_that_needs_more_at_once_than_there_is_waits_and_says_why():
    core = Core()
    core.apply(slots("a", "b"), 0.0)
    core.apply(JobArrived("gang", 5000, 2, "default", min_workers=2, rigid=True, demand=2), 0.0)
    assert core.holding("gang") == (0, 1)
    core.apply(JobApart("gang", ("b",), WHY), 1.0)
    core.apply(SlotReleased("gang", 1), 2.0)
    check(core)
    assert core.holding("gang") == (0,)
    assert core.reason("gang").text == WHY
