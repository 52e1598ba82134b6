"""A core under test: every step checks the invariants and keeps the history."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.job import JobPatch
from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.core.core import Core
from edt_server.core.events import (
    JobArrived,
    JobChanged,
    JobDemand,
    JobGone,
    JobResumed,
    JobSuspended,
    SlotReleased,
    SlotsChanged,
    TimePassed,
)
from edt_server.core.instructions import Grant, Revoke
from tests.server.core.invariants import check


class Play:
    """Applies events in readable words; `shares` is what each job holds once everything revoked has been released."""

    def __init__(self, slots: int = 0, plan: Plan | None = None) -> None:
        self.core = Core(plan)
        self.now = 0.0
        self.history: list[tuple[object, float]] = []
        self.instructions: list[Grant | Revoke] = []
        self.slots(slots)

    def step(self, event):
        self.history.append((event, self.now))
        self.now += 1.0
        self.instructions = self.core.apply(*self.history[-1])
        check(self.core)
        return self.instructions

    def slots(self, *ids: int):
        """`slots(4)`: ids 0 … 3; `slots(0, 2)`: these."""
        numbers = range(ids[0]) if len(ids) == 1 else ids
        return self.step(SlotsChanged(tuple(Slot(id=number, host="h") for number in numbers)))

    def arrive(self, job: str, priority: int = 5000, max_workers: int = 100, group: str = "default", **more):
        return self.step(JobArrived(job, priority, max_workers, group, **more))

    def wait(self, seconds: float):
        """Let time pass from the last event on."""
        self.now += seconds
        return self.step(TimePassed())

    def train(self, job: str, demand: int = 100):
        return self.step(JobDemand(job, demand))

    def run(self, job: str, priority: int = 5000, max_workers: int = 100, group: str = "default", **more):
        """Arrive and begin to train."""
        return self.arrive(job, priority, max_workers, group, **more) + self.train(job)

    def change(self, job: str, **changes):
        return self.step(JobChanged(job, JobPatch(**changes)))

    def suspend(self, job: str):
        return self.step(JobSuspended(job))

    def resume(self, job: str):
        return self.step(JobResumed(job))

    def gone(self, job: str):
        return self.step(JobGone(job))

    def release(self, job: str, slot: int):
        return self.step(SlotReleased(job, slot))

    def release_all(self):
        """Let every leaver leave, oldest job first."""
        for job in self.core.jobs:
            for slot in self.core.leaving(job):
                self.release(job, slot)
        return self

    @property
    def shares(self) -> dict[str, int]:
        self.release_all()
        assert self.core.settled()
        return {job: len(self.core.holding(job)) for job in self.core.jobs}

    def targets(self) -> dict[str, int]:
        return {job: self.core.entitled(job) for job in self.core.jobs}


@pytest.fixture
def play():
    return Play
