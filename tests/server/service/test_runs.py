"""The table of runs: what a command line is taken for, which columns there are, and their order."""

from __future__ import annotations

import pytest

from edt_sdk.schemas.errors import InvalidRequest
from edt_server.service.runs import Run, arguments_of, table_of


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--lr 0.1 --epochs=5", {"lr": 0.1, "epochs": 5}),
        ("--amp --lr 1e-3 --verbose", {"amp": True, "lr": 0.001, "verbose": True}),
        ("data --lr 0.1 more", {"arg0": "data", "lr": 0.1, "arg1": "more"}),
        ("--shift -0.5 -b 32 -x", {"shift": -0.5, "b": 32, "x": True}),
        ("--name= --text a=b", {"name": "", "text": "a=b"}),
        ("model=resnet ++opt.lr=.5", {"model": "resnet", "opt.lr": 0.5}),
        ("--layer 64 --layer 32", {"layer": "64 32"}),
        ("--lr 0.1 -- --not-an-option -5", {"lr": 0.1, "arg0": "--not-an-option", "arg1": -5}),
        ("--run 007 --big 1e999", {"run": "007", "big": "1e999"}),
        ("--hash 12345678901234567890", {"hash": "12345678901234567890"}),
        ("--a 0 --b -3 --c nan --d inf", {"a": 0, "b": -3, "c": "nan", "d": "inf"}),
        ("-5 -", {"arg0": -5, "arg1": "-"}),
        ("--größe 3", {"größe": 3}),
        ("", {}),
    ],
)  # fmt: skip
def test_what_a_command_line_is_taken_for(words, found):
    given = arguments_of(words.split())
    assert given == found
    assert [type(value) for value in given.values()] == [type(value) for value in found.values()]


def run(job, arguments=None, metrics=None, **known):
    return Run({"job": job, "name": "train", "state": "FINISHED", "seed": 0, **known}, arguments or {}, metrics or {})


def jobs(table):
    return [row["job"] for row in table.rows]


def named(table, kind):
    return [column.name for column in table.columns if column.kind == kind]


def table(*runs, sort="", desc=False, limit=100, experiment="rates"):
    return table_of("mnist", experiment, runs, sort, desc=desc, limit=limit)


RUNS = (
    run("a", {"lr": 0.1, "opt": "sgd"}, {"f1": 0.7, "test_loss": 0.5}),
    run("b", {"lr": 10, "opt": "Adam"}, {"f1": 0.9, "test_loss": 0.25}),
    run("c", {"lr": 9, "amp": True}, {}, notes="no end"),
    run("d", {"lr": "auto", "opt": "sgd"}, {"f1": 0.9}),
)


@pytest.mark.parametrize(
    ("sort", "up", "down"),
    [
        ("", "abcd", "abcd"),
        ("lr", "acbd", "dbca"),
        ("opt", "badc", "adbc"),
        ("f1", "abdc", "bdac"),
        ("test_loss", "bacd", "abcd"),
        ("amp", "cabd", "cabd"),
        ("seed", "abcd", "abcd"),
    ],
)
def test_numbers_are_sorted_as_numbers_and_what_is_missing_is_last(sort, up, down):
    assert "".join(jobs(table(*RUNS, sort=sort))) == up
    assert "".join(jobs(table(*RUNS, sort=sort, desc=True))) == down


def test_columns_stand_as_they_are_read_and_what_is_the_same_is_named():
    made = table(*RUNS)
    assert [column.name for column in made.columns] == [
        *("job", "name", "state", "lr", "opt", "amp", "test_loss", "f1", "seed", "notes"),
    ]
    assert (named(made, "argument"), named(made, "metric")) == (["lr", "opt", "amp"], ["test_loss", "f1"])
    assert {column.name: column.direction for column in made.columns if column.direction} == {
        "test_loss": "minimize",
        "f1": "maximize",
    }
    assert made.same == {"name": "train", "state": "FINISHED", "seed": 0}
    assert table(RUNS[0]).same == {}
    part = table(*RUNS, sort="test_loss", limit=2)
    assert (jobs(part), part.total, named(part, "argument")) == (["b", "a"], 4, ["lr", "opt"])


def test_an_argument_named_like_a_setting_or_a_metric_keeps_its_dashes():
    made = table(run("a", {"seed": 1, "loss": "mse"}, {"loss": 0.5}), run("b", {"seed": 2}, seed=7))
    assert named(made, "argument") == ["--seed", "--loss"]
    assert [(row["seed"], row["--seed"]) for row in made.rows] == [(0, 1), (7, 2)]
    assert (made.rows[0]["--loss"], made.rows[0]["loss"]) == ("mse", 0.5)


def test_the_experiment_is_a_column_of_a_whole_project_alone():
    runs = run("a", experiment="rates"), run("b", experiment="sizes")
    assert "experiment" in named(table(*runs, experiment=""), "job")
    assert "experiment" not in named(table(*runs), "job")


def test_an_unknown_column_is_refused_with_the_one_that_is_meant():
    with pytest.raises(InvalidRequest, match="no column 'test_los'") as refused:
        table(*RUNS, sort="test_los")
    assert refused.value.hint == "Did you mean 'test_loss'?"


def test_csv_has_all_columns_and_quotes_what_needs_it():
    made = table(run("a", {"lr": 0.1}, tags=["x", "y"], started=1.6e9), run("b", notes='say "a",\nb'))
    assert made.csv().splitlines() == [
        "job,name,state,lr,started,seed,tags,notes",
        'a,train,FINISHED,0.1,2020-09-13T12:26:40+00:00,0,"x, y",',
        'b,train,FINISHED,,,0,,"say ""a"",',
        'b"',
    ]
