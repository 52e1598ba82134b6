"""What happens in a simulation, worked out by hand, and what holds in every one."""

import random

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.plan import InstanceGroup, Plan
from edt_sdk.schemas.wire.control import Slot
from edt_server.simulator.engine import Engine, SimulationSettings
from edt_server.simulator.figures import completion, figures
from edt_server.simulator.policies import POLICIES, RIGID, make


def ends(run):
    return {life.job.name: life.end for life in run.lives}


def test_two_jobs_share_and_the_survivor_grows(play, job):
    run = play([job("a"), job("b", time=5)])
    # a: 4 s on 8, a pause, 12 s on 4. b: a pause, 12 s on 4, a pause, 4 s on 8.
    a, b = run.lives
    assert a.sizes == ((0, 8), (5, 4), (18, 0))
    assert b.sizes == ((5, 4), (18, 8), (23, 0))
    assert ends(run) == {"a": 18, "b": 23}
    assert (a.restarts, b.restarts) == (1, 1)
    told = figures(run)
    assert (told.mean, told.makespan) == (18, 23)
    assert told.gpu_hours == pytest.approx(184 / 3600)


def test_a_worker_that_leaves_slowly_works_meanwhile_and_keeps_the_other_waiting(play, job):
    run = play([job("a"), job("b", time=5)], settings=SimulationSettings(resize_cost=0, grace=2))
    a, b = run.lives
    assert a.sizes[:2] == ((0, 8), (7, 4))
    assert b.start == 7
    assert ends(run) == {"a": 7 + (80 - 56) / 4, "b": 13 + (80 - 24) / 8}


def test_decisions_in_rounds(play, job):
    run = play([job("a", time=1, work=70)], settings=SimulationSettings(resize_cost=0, interval=60))
    assert run.lives[0].sizes == ((60, 8), (68.75, 0))


def test_priority_is_a_weight_under_fair_share_and_an_order_under_priority(play, job):
    jobs = [job("low", work=60), job("high", work=60, priority=10000)]
    cheap = SimulationSettings(resize_cost=0)
    assert [life.sizes[-2][1] for life in play(jobs, settings=cheap).lives] == [8, 5]
    assert play(jobs, settings=cheap).lives[0].sizes[0] == (0, 3)
    strict = play(jobs, "priority", settings=cheap)
    assert ends(strict)["high"] == 60 / 8


def test_a_program_that_is_not_elastic_keeps_what_it_has_and_the_others_share_the_rest(play, job):
    program = job("program", work=60, max_workers=6, min_workers=6, keeps=True)
    heavy = job("heavy", time=1, work=2 * 9 + 8, priority=50_000)
    run = play([program, heavy], settings=SimulationSettings(resize_cost=0))
    assert run.lives[0].sizes == ((0, 6), (10, 0))
    assert run.lives[1].sizes == ((1, 2), (10, 8), (11, 0))


def test_workers_come_and_go_in_units(play, job):
    run = play([job("a", slots_per_unit=4), job("b", time=5)], slots=7, settings=SimulationSettings(resize_cost=0))
    assert {size for _, size in run.lives[0].sizes} == {0, 4}
    assert run.lives[1].sizes[0] == (5, 3)


def test_in_a_rigid_queue_units_stay_whole_and_who_never_fits_holds_nobody_up(play, job):
    units = job("units", slots_per_unit=4, max_workers=8)
    program = job("program", time=1, max_workers=8, min_workers=8, keeps=True)
    run = play(
        [units, program, job("small", time=2, max_workers=2)], "rigid-fifo", slots=6, settings=SimulationSettings()
    )
    assert [life.sizes[:1] for life in run.lives] == [((0, 4),), (), ((2, 2),)]
    assert figures(run).unfinished == 1


def test_the_rigid_queues(play, job):
    jobs = [job("big", work=60, max_workers=6), job("all", time=1, max_workers=8), job("small", time=2, max_workers=2)]
    free = SimulationSettings(resize_cost=0)
    assert ends(play(jobs, "rigid-fifo", settings=free)) == {"big": 10, "all": 20, "small": 60}
    assert ends(play(jobs, "rigid-backfill", settings=free)) == {"big": 10, "all": 52, "small": 42}


def test_a_job_that_never_fits_ends_the_simulation_and_not_itself(play, job):
    run = play([job("a"), job("gang", min_workers=9, max_workers=16)])
    assert ends(run)["gang"] is None
    assert figures(run).unfinished == 1


def test_more_jobs_than_slots_take_turns(play, job):
    run = play(
        [job(f"j{n}", work=200, max_workers=1) for n in range(3)], slots=2, settings=SimulationSettings(resize_cost=0)
    )
    assert all(life.end is not None for life in run.lives)
    # Were nobody to give way, the third would have to wait for the end of another.
    assert run.lives[2].start < 200


def test_a_job_that_is_given_up_never_ends_and_leaves_its_place(play, job):
    plan = Plan(instance_groups=(InstanceGroup(name="default", preemption=False, pending_timeout=3.0),))
    jobs = [job("a"), job("b", time=1), job("c", time=9)]
    run = play(jobs, "", plan=plan, settings=SimulationSettings(resize_cost=0))
    assert ends(run) == {"a": 10, "b": None, "c": 20}
    assert run.lives[1].sizes == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_finishes_every_job_within_its_slots(play, job, policy):
    chance = random.Random(7)
    jobs = [
        job(f"j{n}", time=chance.random() * 100, work=chance.random() * 300 + 1, max_workers=chance.randint(1, 12))
        for n in range(60)
    ]
    told = []
    run = play(jobs, policy, slots=10, settings=SimulationSettings(grace=0.5), watch=lambda *now: told.append(now))
    assert all(life.end is not None for life in run.lives)
    assert all(
        left >= right - 1e-9 for left, right in zip([t for t, _, _ in told][1:], [t for t, _, _ in told], strict=False)
    )
    assert told[-1][1:] == (60, 60)
    changes = sorted(
        (time, size - before)
        for life in run.lives
        for (_, before), (time, size) in zip(((0, 0), *life.sizes), life.sizes, strict=False)
    )
    held = 0
    for _, change in changes:
        held += change
        assert held <= 10
    assert held == 0
    for life in run.lives:
        assert max(size for _, size in life.sizes) <= life.job.max_workers
        assert policy not in RIGID or len(life.sizes) == 2


def test_the_same_twice(play, job):
    jobs = [job(f"j{n}", time=n * 3.0, work=50 + n) for n in range(40)]
    assert play(jobs).lives == play(jobs).lives


def test_latencies_come_from_the_clock_given(play, job):
    ticks = iter(range(10**6))
    run = play([job()], clock=lambda: float(next(ticks)))
    assert set(run.latencies) == {1.0}
    assert set(play([job()]).latencies) == {0.0}


def test_completion_is_from_arrival_to_end(play, job):
    (life,) = play([job(time=3)]).lives
    assert completion(life) == 11


def test_turns_shorter_than_the_pause_are_refused_and_not_played_for_ever(play, job):
    plan = Plan(instance_groups=(InstanceGroup(name="default", quantum=5.0),))
    jobs = [job(f"j{n}", max_workers=1) for n in range(5)]
    with pytest.raises(Unprocessable, match="no job gets on"):
        play(jobs, "", plan=plan, slots=2, settings=SimulationSettings(resize_cost=30))


def test_it_may_stop_with_one_job_or_after_so_many_instants(job):
    def playing():
        there = [Slot(id=number, host="h") for number in range(4)]
        jobs = [job("short", work=8, max_workers=2), job("long", work=80, max_workers=2)]
        return Engine(make("fairshare", Plan(), there), 4, jobs, SimulationSettings(resize_cost=0))

    whole = ends(playing().run())
    assert whole == {"short": 4, "long": 40}
    assert ends(playing().run(until="short")) == {"short": 4, "long": None}
    assert ends(playing().run(most=1)) == {"short": None, "long": None}
    assert ends(playing().run(most=1000)) == whole
