"""The figures, on runs small enough to work them out by hand."""

import pytest

from edt_server.simulator.engine import Life, SimulatedRun
from edt_server.simulator.figures import figures, finish_time_fairness, percentile


def life(job, sizes, end, restarts=0):
    return Life(job, tuple(sizes), end, restarts)


def test_fairness_compares_with_an_nth_part_of_the_cluster(job):
    a, b = job("a", work=40), job("b", work=40)
    # Both there from 0 to 10, then a alone until 15.
    run = SimulatedRun((life(a, [(0, 4), (15, 0)], 15.0), life(b, [(0, 4), (10, 0)], 10.0)), 8, ())
    rho = finish_time_fairness(run)
    assert rho["b"] == pytest.approx(10 / (40 / 4))
    assert rho["a"] == pytest.approx(15 / (40 / (8 / (25 / 15))))
    told = figures(run)
    assert told.worst_rho == max(rho.values())
    assert told.unfair == 0.5


def test_less_than_a_slot_each_is_a_share_of_its_time(job):
    jobs = [job(f"j{n}", work=10, max_workers=1) for n in range(4)]
    run = SimulatedRun(tuple(life(each, [(0, 1), (20, 0)], 20.0) for each in jobs), 2, ())
    assert set(finish_time_fairness(run).values()) == {1.0}


def test_jobs_that_never_ended_are_counted_apart(job):
    run = SimulatedRun((life(job("a"), [(0, 8), (10, 0)], 10.0), life(job("b"), [], None)), 8, (0.5, 1.5))
    told = figures(run)
    assert (told.jobs, told.unfinished, told.mean, told.decisions, told.latency_p50) == (2, 1, 10, 2, 1.0)
    assert told.gpu_hours == pytest.approx(80 / 3600)


def test_of_nothing():
    told = figures(SimulatedRun((), 4, ()))
    assert (told.mean, told.makespan, told.worst_rho, told.unfair) == (0, 0, 0, 0)


def test_percentiles_are_interpolated():
    assert [percentile([0.0, 10.0, 20.0], p) for p in (0, 25, 50, 100)] == [0, 5, 10, 20]
    assert percentile([], 50) == 0
