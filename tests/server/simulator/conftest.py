"""Workloads small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from edt_sdk.schemas.plan import Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.simulator.engine import Engine
from edt_server.simulator.policies import fit, make
from edt_server.simulator.speed import Speed
from edt_server.simulator.workload import SimulatedJob

ROOT = Path(__file__).parents[3]
LINEAR = Speed.of([(1, 1.0), (64, 64.0)])


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def job():
    """A job of so much work (worker-seconds, as its speed is linear up to 64 workers)."""

    def build(name="a", time=0.0, work=80.0, max_workers=8, **more):
        return SimulatedJob(
            **{"application": "app", "replicas": max_workers, "speed": LINEAR, **more},
            name=name,
            time=time,
            work=work,
            max_workers=max_workers,
        )

    return build


@pytest.fixture
def play():
    """Simulate jobs under a policy; keyword arguments are those of `simulate`."""

    def run(jobs, policy="fairshare", slots=8, settings=None, plan=None, **more):
        plan = plan or Plan()
        there = [Slot(id=number, host="h") for number in range(slots)]
        arguments = [] if settings is None else [settings]
        return Engine(make(policy, plan, there), slots, fit(jobs, policy, plan, slots), *arguments, **more).run()

    return run
