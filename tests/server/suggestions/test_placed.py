"""Values that follow from a number: each point of a grid once, and a sequence that fills the space evenly."""

from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.search.space import Choice, Integer, Uniform, choice, integer, log, on_grid, uniform
from edt_server.suggestions.suggester import in_sequence
from tests.server.suggestions.asked import SPACE, STEPPED, asking


def sequence(space, seed, *numbers):
    return [each.values for each in in_sequence(asking("qmc", *numbers, space=space, seed=seed))]


@pytest.mark.parametrize(
    ("parameter", "number"),
    [
        (choice(1, True, "x"), 3),
        (integer(1, 6), 6),
        (integer(1, 6, step=2), 3),
        (integer(4, 4), 1),
        (uniform(0, 0.3, step=0.1), 4),
        (uniform(0.001, 0.1, step=0.002), 50),
        (uniform(2, 2), 1),
        (uniform(0, 1), None),
        (log(1, 2), None),
    ],
)
def test_how_many_values(parameter, number):
    assert parameter.count == number


def test_a_grid_has_each_point_once_in_order_and_ends():
    numbers = iter(range(10**6))
    trials = list(iter(lambda: on_grid(STEPPED, next(numbers)), None))
    assert [tuple(each.values()) for each in trials] == list(
        product([0.1, 0.01], [1, 3, 5], [0.001, 0.034, 0.067, 0.1])
    )
    assert on_grid(STEPPED, len(trials) + 5) is None


@given(st.integers(-50, 50), st.integers(1, 7), st.integers(0, 40), st.sampled_from([1, 10, 1000]))
def test_the_values_of_a_stepped_range_are_those_of_fitted(low, step, number, part):
    parameter = Uniform(low / part, (low + number * step) / part, step=step / part)
    if parameter.count != number + 1:
        pytest.fail(f"{parameter} has {parameter.count} values")
    values = [on_grid({"x": parameter}, at)["x"] for at in range(number + 1)]
    assert values == [parameter.fitted(each) for each in values]
    assert len(set(values)) == number + 1
    assert on_grid({"x": parameter}, number + 1) is None


def test_a_sequence_fills_the_space_evenly():
    space = {
        "x": uniform(0, 1),
        "n": integer(0, 7),
        "c": choice(*"abcd"),
        "lr": log(1e-4, 1),
        "i": integer(1, 8, log=True),
    }
    trials = sequence(space, 3, *range(64))
    assert sorted(int(each["x"] * 64) for each in trials) == list(range(64))
    assert all([each["n"] for each in trials].count(n) == 8 for n in range(8))
    assert all([each["c"] for each in trials].count(c) == 16 for c in "abcd")
    assert [sum(10**-k <= each["lr"] < 10 ** -(k - 1) for each in trials) for k in range(1, 5)] == [16] * 4
    assert {each["i"] for each in trials} == set(range(1, 9))


def test_a_sequence_is_a_function_of_seed_and_number():
    trials = sequence(SPACE, 3, *range(20))
    assert sequence(SPACE, 3, 12) == trials[12:13]
    assert sequence(SPACE, 4, 12) != trials[12:13]
    assert all(SPACE[name].fitted(value) == value for each in trials for name, value in each.items())


def test_the_order_of_a_large_grid_needs_no_list():
    space = {f"x{at}": integer(0, 9) for at in range(60)}
    assert list(on_grid(space, 10**59 + 7).values()) == [1] + [0] * 58 + [7]
    assert list(islice(on_grid({"a": Choice((1,)), "b": Integer(2, 2)}, 0).items(), 2)) == [("a", 1), ("b", 2)]
