"""What a search may be: defaults in one place, and each wrong setting is refused by its name with what is meant."""

from __future__ import annotations

import contextlib
import json
import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.errors import EdtError, InvalidRequest, Unprocessable
from edt_sdk.schemas.fields import descriptions, options
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.search.cost import cost_of
from edt_sdk.schemas.search.space import Uniform, choice, integer, log, uniform
from edt_sdk.schemas.search.spec import (
    ALGORITHMS,
    SearchPatch,
    SearchSpec,
    brackets,
    filled,
    parse_search,
)
from edt_sdk.schemas.search.views import Decision, RungView, SearchView, TrialReport, TrialView

SPACE = {"lr": log(1e-4, 1e-1), "width": choice(32, 64), "act": choice("relu", "tanh")}


def job(**changes):
    return JobSpec(**({"name": "digits-lr", "main": "train.py", "max_workers": 4} | changes))


def search(**changes):
    return SearchSpec(**({"job": job(), "space": SPACE, "metric": "test_accuracy", "trials": 81} | changes))


@pytest.mark.parametrize(
    ("given", "algorithm", "order", "sampler", "trials"),
    [
        ({}, "tpe", "clock", "tpe", 81),
        ({"epochs": 27, "min_epochs": 1}, "halving", "rungs", "random", 81),
        ({"epochs": 27, "min_epochs": 1, "deterministic": False}, "halving", "free", "random", 81),
        ({"algorithm": "asha", "epochs": 27, "sampler": "tpe"}, "asha", "clock", "tpe", 81),
        ({"algorithm": "grid", "space": {"a": integer(0, 2), "b": choice(1, 2)}, "trials": 0}, "grid", "rungs", "", 6),
        ({"algorithm": "list", "points": ({"a": 1}, {"b": 2}), "space": {}, "trials": 0}, "list", "rungs", "", 2),
        ({"algorithm": "hyperband", "epochs": 9, "deterministic": False}, "hyperband", "rungs", "random", 81),
        ({"algorithm": "my-own"}, "my-own", "rungs", "", 81),
        ({"algorithm": "manual", "space": {}}, "manual", "free", "", 81),
    ],
)  # fmt: skip
def test_defaults(given, algorithm, order, sampler, trials):
    whole = search(**given).check().resolved()
    assert (whole.algorithm, whole.order, whole.sampler, whole.trials) == (algorithm, order, sampler, trials)
    assert whole.direction == "maximize"
    assert whole.check().resolved() == whole


def test_a_direction_follows_from_the_metric_where_that_is_clear():
    assert search(metric="test_loss").resolved().direction == "minimize"
    assert search(metric="F1").check().resolved().direction == "maximize"
    assert search(metric="test_loss", direction="maximize").resolved().direction == "maximize"
    with pytest.raises(Unprocessable, match="Is more or less of 'speed' better"):
        search(metric="speed").check()


# Each row of the table of bad input that can be decided without a server.
REFUSED = [
    ({"space": {"lr": log(1, 0.1)}}, "space.lr", "begins at 1"),
    ({"space": {"lr": log(0, 1)}}, "space.lr", "above 0"),
    ({"space": {"lr": uniform(0, 1, step=2)}}, "space.lr", "step"),
    ({"space": {"lr": uniform(0, 1, step=0)}}, "space.lr", "step"),
    ({"space": {"lr": choice()}}, "space.lr", "choices"),
    ({"space": {"lr": choice(1, 1)}}, "space.lr", "twice"),
    ({"space": {"l r": choice(1, 2)}}, "space.l r", "letters"),
    ({"space": {f"p{n}": choice(1, 2) for n in range(65)}}, "space", "64"),
    ({"space": {"a": choice(*range(1001))}}, "space.a", "1,000"),
    ({"space": {"a": choice(*("x" * 2000 + str(n) for n in range(600)))}}, "space", "1,000,000"),
    ({"space": {}}, "space", "nothing to search"),
    ({"job": job(args=("--lr", "{lrr}"))}, "args", "Did you mean 'lr'"),
    ({"job": job(args=("--x", "{speed}"))}, "args", "{{speed}}"),
    ({"job": job(name="a/b")}, "name", "120"),
    ({"job": job(name="x" * 121)}, "name", "120"),
    ({"job": job(priority=0)}, "priority", "priority"),
    ({"metric": ""}, "metric", "200"),
    ({"direction": "maximise"}, "direction", "Did you mean 'maximize'"),
    ({"algorithm": "halvin"}, "algorithm", "Did you mean 'halving'"),
    ({"sampler": "tpee", "algorithm": "asha", "epochs": 3}, "sampler", "Did you mean 'tpe'"),
    ({"sampler": "random", "algorithm": "tpe"}, "sampler", "itself"),
    ({"order": "clok"}, "order", "Did you mean 'clock'"),
    ({"order": "rungs", "algorithm": "tpe"}, "order", "clock or free"),
    ({"order": "free", "algorithm": "hyperband", "epochs": 9}, "order", "asha"),
    ({"order": "clock", "deterministic": False}, "order", "free"),
    ({"value": "bset"}, "value", "Did you mean 'best'"),
    ({"job_seed": "per_trail"}, "job_seed", "Did you mean 'per-trial'"),
    ({"algorithm": "pbt", "epochs": 9, "options": {"quantil": 0.2}}, "options", "Did you mean 'quantile'"),
    ({"algorithm": "pbt", "epochs": 9, "options": {"quantile": "many"}}, "options", "number"),
    ({"epochs": 27, "min_epochs": 1, "job": job(framework="PyTorch")}, "min_epochs", "resource="),
    ({"epochs": 27, "algorithm": "asha", "resource": "epochs"}, "resource", "halving or hyperband"),
    ({"epochs": 27, "min_epochs": 1, "resource": "lr"}, "resource", "lr"),
    ({"epochs": 27, "min_epochs": 1, "eta": 1.5}, "eta", "2 …"),
    ({"epochs": 27, "min_epochs": 1, "eta": float("nan")}, "eta", "2 …"),
    ({"epochs": 3, "min_epochs": 9}, "min_epochs", "only 3"),
    ({"min_epochs": 3}, "epochs", "needs the epochs"),
    ({"algorithm": "tpe", "min_epochs": 3}, "min_epochs", "asha"),
    ({"epochs": -1}, "epochs", "0 …"),
    ({"epochs": 27, "min_epochs": 1, "trials": 2}, "trials", "at least 3"),
    ({"algorithm": "pbt", "epochs": 9, "options": {"quantile": 0.6}}, "options", "0 … 0.5"),
    ({"algorithm": "pbt", "epochs": 9, "options": {"resample": 1.5}}, "options", "0 … 1"),
    ({"algorithm": "pbt", "epochs": 9, "min_epochs": 9}, "min_epochs", "before they have all 9 epochs"),
    ({"algorithm": "pbt", "epochs": 27, "trials": 1}, "trials", "at least 2"),
    ({"trials": 0}, "trials", "10,000"),
    ({"trials": 10_001}, "trials", "10,001"),
    ({"algorithm": "gp", "trials": 2001}, "trials", "2,000"),
    ({"algorithm": "grid", "space": {"lr": log(0.1, 1)}}, "space.lr", "step, or choices"),
    ({"algorithm": "grid", "space": {c: choice(*range(100)) for c in "abc"}, "trials": 0}, "trials", "1,000,000"),
    ({"algorithm": "grid", "space": {"a": choice(1, 2)}, "points": ({"a": 1},)}, "points", "by itself"),
    ({"algorithm": "grid", "space": {"a": uniform(0, 1, step=0)}}, "space.a", "step"),
    (
        {"algorithm": "grid", "space": {f"p{n}": uniform(0, 1e9, step=1) for n in range(64)}, "trials": 0},
        "trials",
        "1,0",
    ),
    ({"space": {"a": uniform(-1e308, 1e308)}}, "space.a", "finite"),
    ({"space": {"a": Uniform(low=0, high=1000, base=10)}}, "space.a", "no number"),
    ({"algorithm": "list", "space": {}, "points": ({"a b": 1},)}, "space.a b", "letters"),
    ({"algorithm": "list", "space": {}, "points": ({},)}, "points", "no values"),
    ({"algorithm": "list", "space": {}, "points": ({"a": float("nan")},)}, "space.a", "finite"),
    ({"algorithm": "median", "epochs": 5000}, "min_epochs", "min_epochs=5"),
    ({"epochs": 9, "min_epochs": 1, "eta": 1e300}, "eta", "1,000"),
    ({"epochs": 9, "min_epochs": 1, "resource": "a b"}, "space.a b", "letters"),
    ({"lanes": 0}, "lanes", "1 …"),
    ({"seed": -1}, "seed", "0 …"),
    ({"parallel": -1}, "parallel", "-1"),
    ({"max_time": 0.0}, "max_time", "above 0"),
    ({"points": ({"lr": 0.1, "width": 32},)}, "points", "'act'"),
    ({"points": ({"lrr": 0.1},)}, "points", "Did you mean 'lr'"),
    ({"points": ({"lr": 0.1, "width": 32, "act": "relu"},) * 3, "trials": 2}, "points", "3 points"),
    ({"cost": "width*"}, "cost", "no expression"),
    ({"cost": "(lambda: 1)()"}, "cost", "no expression"),
    ({"cost": "widht*2"}, "cost", "Did you mean 'width'"),
    ({"cost": "act*2"}, "cost", "not all numbers"),
]


@pytest.mark.parametrize(("given", "field", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(given, field, words):
    with pytest.raises(EdtError) as refused:
        search(**given).check()
    assert refused.value.ids["field"] == field
    assert words in str(refused.value)
    assert 400 <= refused.value.status < 500


def test_only_elastic_jobs_are_held_and_others_get_new_runs():
    job_ = job(framework="PyTorch", args=("--epochs", "{epochs}"))
    search(epochs=27, min_epochs=1, job=job_, resource="epochs").check()


def test_a_parameter_that_stands_in_no_argument_is_a_note():
    assert search().notes() == ()  # the script reads all of them by itself
    (note,) = search(job=job(args=("--lr={lr}", "--width", "{width}"))).notes()
    assert note.startswith("act stands in no argument")
    (note,) = search(job=job(mode="fast")).notes()
    assert "bit by bit" in note


def test_values_take_the_places_of_their_names():
    words = filled(["--lr={lr}", "{width}x{width}", "{{lr}}", "{other}", '{"a": 1}'], {"lr": 0.001, "width": 32})
    assert words == ("--lr=0.001", "32x32", "{lr}", "{other}", '{"a": 1}')


def test_the_brackets_of_hyperband_are_those_of_the_paper():
    assert brackets(27, 1, 3) == [(27, [1, 3, 9, 27]), (12, [3, 9, 27]), (6, [9, 27]), (4, [27])]
    assert [n for n, _ in brackets(81, 1, 3)] == [81, 34, 15, 8, 5]
    assert brackets(20, 1, 3) == [(9, [2, 6, 20]), (5, [6, 20]), (3, [20])]


@pytest.mark.parametrize(
    ("text", "cost"),
    [("", 1), ("depth*width/64", 6), ("2**3 - -1", 9), ("(width + 64) / 64", 3), ("0", 1), ("1/0", 1), ("-5", 1),
     ("9.0**9**9**9", 1), ("(-8)**0.5", 1), ("missing", 1)],
)  # fmt: skip
def test_a_cost_is_arithmetic_over_the_values(text, cost):
    assert cost_of(text, {"depth": 3, "width": 128}) == cost


RANGES = [log(1e-4, 0.1), uniform(-1, 1, step=0.1), integer(1, 9), integer(1, 100, log=True), choice("a", 3)]


@given(st.sampled_from(RANGES), st.floats(0, 1))
def test_what_lies_between_the_ends_is_a_value(parameter, fraction):
    assert parameter.fitted(parameter.between(fraction)) == parameter.between(fraction)


def test_a_grid_counts_its_values_exactly():
    assert [uniform(0.001, 0.1, step=0.002).at(k) for k in (0, 15, 49)] == [0.001, 0.031, 0.099]
    assert (uniform(0, 0.5, step=0.05).count, integer(1, 6).count, choice(1, "a").count) == (11, 6, 2)
    assert log(0.1, 1).count is None


def test_a_search_crosses_the_wire():
    given = search(points=({"lr": 0.1, "width": 32, "act": "relu"},), epochs=27, min_epochs=1, options={"a": True})
    assert parse_search(msgspec.json.encode(given)) == given
    body = json.loads(msgspec.json.encode(given))
    with pytest.raises(InvalidRequest, match="Did you mean 'min_epochs'"):
        parse_search(json.dumps(body | {"min_epoch": 3}))
    assert parse_search(json.dumps(body | {"of_a_newer_client": 3})) == given
    with pytest.raises(InvalidRequest, match="trials must be a whole number"):
        parse_search(json.dumps(body | {"trials": "many"}))


ODD = [None, True, -1, 0, 1, 2, 3, 81, 2**62, 0.5, 1e308, "", "x", "1", "halving", "pbt", "median", "asha", "hyperband",
       "grid", "list", "free", "rungs", "clock", "a*2", "a**a**a", "{a}", [], [{"a": 1}], [{"b": 2}], {}, {"a": 1},
       {"quantile": 2}, {"a": {"kind": "integer", "low": 1, "high": 3}}, {"a": {"kind": "choice", "values": [1, "x"]}},
       {"a": {"kind": "uniform", "low": 0, "high": 1, "step": 0}},
       {"a": {"kind": "uniform", "low": -1e308, "high": 1e308}},
       {"a": {"kind": "uniform", "low": 1, "high": 1e308, "base": 10}}, {"a": {"kind": "odd"}}]  # fmt: skip


@given(st.dictionaries(st.sampled_from(SearchSpec.__struct_fields__[1:]), st.sampled_from(ODD), max_size=6))
@settings(max_examples=int(os.environ.get("EDT_SEARCH_EXAMPLES", "300")), deadline=None)
def test_whatever_is_sent_is_a_search_or_is_refused_in_words(fields):
    body = json.loads(msgspec.json.encode(search(epochs=9))) | fields
    with contextlib.suppress(InvalidRequest, Unprocessable):
        found = parse_search(json.dumps(body))
        whole = found.resolved()
        assert whole.check() == whole
        assert found.notes() is not None
        assert all(found.point(each) for each in found.points)


def test_a_change_names_what_it_changes():
    assert SearchPatch(trials=100, priority=9000).check().changes() == {"priority": 9000, "trials": 100}
    for wrong, field in (({"trials": 0}, "trials"), ({"priority": 0}, "priority")):
        with pytest.raises(Unprocessable) as refused:
            SearchPatch(**wrong).check()
        assert refused.value.ids["field"] == field
    with pytest.raises(InvalidRequest, match="Nothing to change"):
        SearchPatch().check()


@pytest.mark.parametrize("struct", [SearchSpec, SearchPatch, TrialReport, Decision, TrialView, RungView, SearchView])
def test_every_field_is_described_or_named_by_itself(struct):
    plain = {"id", "owner", "number", "state", "created", "ended", "search"}
    missing = set(struct.__struct_fields__) - set(descriptions(struct)) - plain
    assert missing == set()


def test_the_settings_become_options():
    names = [name for name in SearchSpec.__struct_fields__ if name not in ("job", "space", "points", "options")]
    flags = dict(options(SearchSpec, names))
    assert flags["--min-epochs"]["type"] is int
    assert flags["--direction"]["choices"] == ("", "minimize", "maximize")
    assert set(ALGORITHMS) >= {"random", "tpe", "halving", "hyperband", "asha", "pbt", "median", "grid"}
