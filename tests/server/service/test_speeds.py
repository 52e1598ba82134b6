"""Measured speeds as a change of a ledger: the core is told what is news and nothing else."""

from __future__ import annotations

import time

import pytest

from edt_sdk.schemas.job import JobProgress, JobSpec
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire import control
from edt_sdk.schemas.wire.control import Slot
from edt_sdk.schemas.wire.paths import JobPaths
from edt_server.core.events import SlotsChanged
from edt_server.jobs.submission import Submission
from edt_server.ledger import reports
from edt_server.ledger.ledger import Ledger
from edt_server.service.speeds import PERIOD, SpeedMeter, measure


@pytest.fixture
def ledger(tmp_path):
    plan = Plan(instance_groups=(InstanceGroup(name="default", throughput_aware=True),))
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'edt.db'}", plan)
    ledger.change(lambda change: change.apply(SlotsChanged(tuple(Slot(id=k, host="h") for k in range(4)))))
    spec = JobSpec(name="a", main="train.py", max_workers=4)
    ledger.change(Submission("a", "ann", spec, "/python", 1, JobPaths(tmp_path, "ann", "a")).enter)
    yield ledger
    assert Ledger(ledger.store, plan).core.digest() == ledger.core.digest(), "replay"
    ledger.close()


def test_a_new_size_and_another_speed_are_told_and_noise_is_not(ledger):
    formed = time.time()

    def generation(number: int, workers: int, update: int) -> None:
        report = control.GenerationFormed(
            training=0,
            number=number,
            workers=tuple(range(workers)),
            slots=tuple(range(workers)),
            pids=tuple(range(workers)),
            update=update,
        )
        numbered = control.Numbered(number=number, time=formed, report=report)
        ledger.change(lambda change: reports.take(change, "a", numbered))

    def look(update: int, after: float) -> bool:
        progress = JobProgress(update=update, total_updates=1000)
        return ledger.change(lambda change: measure(change, "a", progress, formed + after))[0]

    assert not look(100, 20.0), "no generation"
    generation(1, 1, 0)
    assert not look(5, 20.0), "too little to go by"
    assert look(100, 20.0)
    assert ledger.core.speeds("a") == pytest.approx({1: 5.0}, rel=0.01)
    assert not look(210, 40.0), "the same within the noise"
    generation(2, 2, 200)
    assert look(380, 20.0)
    assert ledger.core.speeds("a") == pytest.approx({1: 5.0, 2: 9.0}, rel=0.01)
    assert "its speed was measured: 5 a second on 1 slot" in ledger.store.events(job="a")[-1].text


async def unused(work):
    raise AssertionError("when to measure is decided without a change")


def test_each_job_is_looked_at_once_a_period():
    speeds = SpeedMeter(unused)
    assert speeds.due("a", 100.0)
    assert not speeds.due("a", 100.0 + PERIOD / 2)
    assert speeds.due("b", 101.0)
    assert speeds.due("a", 100.0 + PERIOD)


def test_a_new_size_and_one_that_was_too_short_are_looked_at_soon():
    speeds = SpeedMeter(unused)
    assert speeds.due("a", 100.0)
    speeds.too_early("a", 100.0)
    assert not speeds.due("a", 105.0)
    assert speeds.due("a", 110.0)
    speeds.moved("a", 115.0)
    assert not speeds.due("a", 124.0)
    assert speeds.due("a", 125.0)
    speeds.moved("b", 125.0)
    assert speeds.due("b", 125.0), "nothing is known of it yet"
    speeds.moved("a", 125.0 + PERIOD - 1.0)
    assert speeds.due("a", 125.0 + PERIOD), "not later than it would have been"
