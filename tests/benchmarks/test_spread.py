"""The spread of some times."""

from benchmarks.spread import Spread


def test_median_the_slowest_of_a_hundred_and_the_worst():
    spread = Spread.of([n / 1000 for n in range(200, 0, -1)])
    assert (spread.n, spread.median, spread.p99, spread.worst) == (200, 0.101, 0.199, 0.2)
    assert spread.row("a call") == ["a call", "200", "101.0 ms", "199.0 ms", "200.0 ms"]


def test_of_few_the_slowest_of_a_hundred_is_the_worst():
    assert Spread.of([1.0]).p99 == 1.0
    assert Spread.of([2.0, 1.0]).p99 == 2.0
