"""The short forms of the `make chaos` targets: plans, trainings, searches and kills with fixed seeds."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from edt_sdk.testing import LocalServer
from tests.chaos import fleet, fleet_plan, plan, referee, serving
from tests.chaos.__main__ import TRAITS
from tests.chaos.plan import Kind, Training
from tests.chaos.scenario import Disturbed, submit
from tests.chaos.searches import Runner, Size, halving
from tests.chaos.server_kills import kill_again_and_again
from tests.chaos.victims import PostgresVictim
from tests.e2e.harness import Jobs
from tests.server.store.cluster import Missing

EPOCHS, SEED, EVENTS = 25, 11, 7
REST = sorted(set(serving.PARTS) - {"replicas", "edge"})


def test_a_seed_names_one_plan_and_every_plan_can_be_carried_out() -> None:
    for seed in range(200):
        events = plan.events(seed, 0, 16)
        assert events == plan.events(seed, 0, 16)
        up, suspended = True, False
        for event in events:
            if event.kind in plan.VERBS:
                assert up, events
            if event.kind is Kind.START_SERVER:
                assert not up
                up = True
            if event.kind in (Kind.KILL_SERVER, Kind.KILL_EVERYTHING):
                up = False
            suspended = event.kind is Kind.SUSPEND or (suspended and event.kind is not Kind.RESUME)
        assert up
        assert not suspended


def test_the_first_trainings_cover_every_model_optimizer_and_number_of_shards() -> None:
    chosen = plan.trainings(3, 8)
    assert len({training.model for training in chosen}) == 5
    assert len({training.optimizer for training in chosen}) == 4
    assert {training.shards for training in chosen} == set(range(1, 9))


def test_two_machines_are_left_alone_at_any_time_and_each_event_ends() -> None:
    for seed in range(100):
        steps = fleet_plan.steps(seed, 40, fleet.NAMES)
        assert steps == fleet_plan.steps(seed, 40, fleet.NAMES)
        assert [step.number for step in steps if not step.undo] == list(range(1, 41))
        under_way: dict[int, fleet_plan.Step] = {}
        for step in steps:
            if step.undo:
                begun = under_way.pop(step.number)
                assert (begun.kind, begun.machine) == (step.kind, step.machine)
            elif step.kind is not fleet_plan.Kind.RESIZE:
                under_way[step.number] = step
            kinds = [each.kind for each in under_way.values()]
            assert fleet_plan.Kind.KILL_SERVER not in kinds or step.kind not in fleet_plan.VERBS
            disturbed = [each.machine for each in under_way.values() if each.machine]
            assert len(disturbed) == len(set(disturbed)) <= 2, (seed, step)
        assert not under_way


@pytest.mark.parametrize(
    "training",
    [
        pytest.param(Training("cnn", "adam", shards=8, loaders=0), id="cnn"),
        pytest.param(Training("transformer", "adamw", shards=3, loaders=2), id="transformer", marks=pytest.mark.long),
    ],
)
def test_the_same_bits_whatever_happens(tmp_path: Path, training: Training) -> None:
    with LocalServer(tmp_path / "server", slots=4, traits=TRAITS) as server:
        jobs = Jobs(server)
        quiet = submit(jobs, training, EPOCHS, workers=1).wait(300, progress=False)
        undisturbed = referee.read(jobs, quiet, EPOCHS, training.shards)
        disturbed = Disturbed(jobs, print)
        job = disturbed.run(training, EPOCHS, plan.events(SEED, training.shards, EVENTS))
        referee.compare(referee.read(jobs, job, EPOCHS, training.shards), undisturbed)
        assert disturbed.done == len(plan.events(SEED, training.shards, EVENTS))


def test_the_same_search_whatever_is_killed(tmp_path: Path) -> None:
    size = Size(trials=6, epochs=3, kills=5, resizes=1)
    halving(Runner(tmp_path / "server", size, random.Random(SEED)), others=())


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=[pytest.mark.long] if part in ("updates", "soak") else []) for part in serving.PARTS],
)
def test_every_request_is_answered_rightly_whatever_is_killed(tmp_path: Path, part: str) -> None:
    serving.run(tmp_path / "serving", replace(serving.QUICK, seconds=4.0, addresses=100), [part], SEED)


@pytest.mark.long
def test_a_postgresql_that_is_killed_takes_nothing_with_it(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the driver is missing: pip install 'jupyter-edt[postgresql]'")
    try:
        victim = PostgresVictim()
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        print(kill_again_and_again(tmp_path / "server", 2, SEED, victim))
    finally:
        victim.stop()


@pytest.mark.long
def test_machines_that_come_and_go_have_the_same_bits(tmp_path: Path) -> None:
    print(fleet.run(tmp_path / "fleet", fleet.QUICK, SEED, fleet_plan.steps(SEED, 8, fleet.NAMES)))
