"""The space of a search: values are exact, and a description that makes no sense is refused by its parameter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.search.space import (
    Choice,
    Integer,
    Uniform,
    check_space,
    choice,
    integer,
    log,
    parse_space,
    uniform,
)


def test_a_text_says_what_python_says():
    text = (
        "lr=log(1e-4, 1e-1) width=32|64|128 depth=integer(1,6,log=true) dropout=uniform(0,0.5,step=0.05) act=relu|tanh"
    )
    assert parse_space(text) == {
        "lr": log(1e-4, 1e-1),
        "width": choice(32, 64, 128),
        "depth": integer(1, 6, log=True),
        "dropout": uniform(0, 0.5, step=0.05),
        "act": choice("relu", "tanh"),
    }


@pytest.mark.parametrize(
    "text",
    ["lr", "lr=", "lr=lgo(1,2)", "lr=log(a,b)", "lr=log(1)", "n=integer(1.5,2)", "a=1|2 a=3|4", "a=uniform(0,1,1,1)"],
)
def test_a_text_that_describes_nothing_is_refused_by_its_parameter(text):
    with pytest.raises(Unprocessable) as refused:
        parse_space(text)
    assert refused.value.ids["field"] == f"space.{text[: text.index('=')] if '=' in text else text}"
    assert "lr=log(1e-4,1e-1)" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "parameter", "why"),
    [
        ("lr", uniform(1, 0), "ends before that"),
        ("lr", log(0, 1), "lies above 0"),
        ("lr", uniform(0, 1, step=2), "step"),
        ("lr", uniform(0, 1, step=0), "step"),
        ("lr", uniform(0, float("nan")), "finite"),
        ("lr", Uniform(low=0, high=1, base=1), "base"),
        ("n", Integer(low=1, high=9, step=2, log=True), "no step"),
        ("w", choice(), "1 to 1,000 choices"),
        ("w", Choice(values=tuple(range(1001))), "1 to 1,000 choices"),
        ("w", choice(1, 2, 1), "twice"),
        ("a b", choice(1), "letters"),
        ("x" * 65, choice(1), "letters"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(name, parameter, why):
    with pytest.raises(Unprocessable, match=why) as refused:
        check_space({name: parameter})
    assert refused.value.ids["field"] == f"space.{name}"


def test_a_search_has_at_most_64_parameters():
    check_space({f"p{n}": choice(1) for n in range(64)})
    with pytest.raises(Unprocessable, match="at most 64"):
        check_space({f"p{n}": choice(1) for n in range(65)})


def test_true_is_not_the_choice_1():
    both = choice(1, True)
    check_space({"a": both})
    assert both.fitted(True) is True
    assert both.fitted(1) is not True
    with pytest.raises(Unprocessable, match="none of"):
        both.fitted("1")


def test_steps_are_exact():
    assert [uniform(0.001, 0.1, step=0.002).fitted(x) for x in (0.0309, 0.0441635, 5, -1)] == [
        0.031,
        0.045,
        0.099,
        0.001,
    ]
    assert Uniform(low=-2, high=0, step=0.5, base=10).fitted(0.03) == 0.0316227766017


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 9), st.floats(-1e3, 1e3))
def test_a_fitted_value_is_in_the_range_on_a_step_and_the_nearest(low, length, step, value):
    number = integer(low, low + length, step=step).fitted(value)
    possible = range(low, low + length + 1, step)
    assert number in possible
    assert abs(number - value) == min(abs(each - value) for each in possible)
    assert integer(low, low + length, step=step).fitted(number) == number


@given(st.floats(1e-6, 1e3), st.floats(1, 1e3), st.floats(-1e6, 1e6))
def test_fitting_twice_is_fitting_once(low, factor, value):
    parameter = log(low, low * factor)
    once = parameter.fitted(value)
    assert parameter.fitted(once) == once
