"""Which options an algorithm takes, by our names and WMLA's, and which searches it refuses, each with a sentence."""

import pytest

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.search.space import choice, integer, log, uniform
from edt_server.suggestions import ALGORITHMS, algorithms, check_algorithm

SPACE = {"lr": log(1e-4, 1e-1), "width": choice(32, 64), "depth": integer(1, 6)}


@pytest.mark.parametrize(
    ("algorithm", "options", "expected"),
    [
        ("tpe", {}, {}),
        (
            "tpe",
            {"RandomSeed": "2", "WarmUp": "20", "EICandidate": "24", "GoodRatio": "0.25", "GoodMax": "25"},
            {"seed": 2, "n_startup_trials": 20, "n_ei_candidates": 24, "good_ratio": 0.25, "good_most": 25},
        ),
        ("tpe", {"startup": 1, "good_ratio": 1}, {"n_startup_trials": 1, "good_ratio": 1.0}),
        (
            "gp",
            {"InitPoints": "10", "Noiseless": "true", "CubeSize": "5000"},
            {"n_startup_trials": 10, "deterministic_objective": True},
        ),
        ("gp", {"Noiseless": "False", "CubeSize": "-1"}, {"deterministic_objective": False}),
        ("cmaes", {"sigma": "0.5", "population": 8}, {"sigma0": 0.5, "popsize": 8}),
        (
            "nsga2",
            {"population": "10", "mutation": 0, "crossover": "0.5"},
            {"population_size": 10, "mutation_prob": 0.0, "crossover_prob": 0.5},
        ),
        ("random", {"RandomSeed": "4294967295"}, {"seed": 4294967295}),
    ],
)
def test_options_by_both_names_and_as_texts(algorithm, options, expected):
    assert check_algorithm(algorithm, options, SPACE, trials=100) == expected


@pytest.mark.parametrize(
    ("algorithm", "options", "field", "sentence"),
    [
        ("tpe", {"WarmUp": "2"}, "options.WarmUp", "The option WarmUp cannot be '2'. Expected `int` >= 3."),
        ("tpe", {"EICandidate": "1"}, "options.EICandidate", "Expected `int` >= 2"),
        ("tpe", {"GoodRatio": "0"}, "options.GoodRatio", "Expected `float` > 0"),
        ("tpe", {"GoodRatio": "nan"}, "options.GoodRatio", "cannot be 'nan'"),
        ("tpe", {"GoodMax": "many"}, "options.GoodMax", "cannot be 'many'"),
        ("tpe", {"startup": True}, "options.startup", "cannot be True"),
        ("tpe", {"startup": 4, "WarmUp": "4"}, "options.WarmUp", "given twice"),
        ("tpe", {"population": 4}, "options.population", "tpe has no option 'population'; it has seed, RandomSeed,"),
        ("gp", {"Noiseless": "maybe"}, "options.Noiseless", "cannot be 'maybe'"),
        ("gp", {"CubeSize": "50"}, "options.CubeSize", "at least the number of trials, 100, not 50"),
        ("cmaes", {"sigma": 0}, "options.sigma", "Expected `float` > 0"),
        ("nsga2", {"population": 1}, "options.population", "Expected `int` >= 2"),
        ("random", {"RandomSeed": "-1"}, "options.RandomSeed", "Expected `int` >= 0"),
        ("Tpe", {}, "algorithm", "There is no algorithm 'Tpe'; there are random, qmc, tpe,"),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(algorithm, options, field, sentence):
    with pytest.raises(Unprocessable) as refused:
        check_algorithm(algorithm, options, SPACE, trials=100)
    assert sentence in refused.value.message
    assert refused.value.ids["field"] == field


@pytest.mark.parametrize(
    ("algorithm", "more", "sentence"),
    [
        ("cmaes", {"space": {"width": choice(1, 2), "lr": log(1, 2)}}, "cmaes needs two parameters"),
    ],
)
def test_a_search_that_the_algorithm_cannot_do(algorithm, more, sentence):
    space = more.pop("space", SPACE)
    with pytest.raises(Unprocessable) as refused:
        check_algorithm(algorithm, {}, space, **more)
    assert sentence in refused.value.message


def test_each_algorithm_that_can_takes_this_space():
    for algorithm in ALGORITHMS:
        space = {"x": uniform(0, 1, step=0.1), "y": integer(0, 9)}
        assert check_algorithm(algorithm, {}, space, trials=2000) == {}


def test_a_package_that_is_missing(monkeypatch):
    monkeypatch.setattr(algorithms, "find_spec", lambda name: None)
    with pytest.raises(Unprocessable, match=r"needs cmaes.*jupyter-edt\[search\]"):
        check_algorithm("cmaes", {}, SPACE)
    assert check_algorithm("tpe", {}, SPACE) == {}
