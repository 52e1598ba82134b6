"""What the pictures of a search show of its trials, from the core alone."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from edt_sdk.pictures.history import draw_history
from edt_sdk.pictures.parallel import draw_parallel
from edt_sdk.pictures.rungs import draw_rungs
from edt_sdk.schemas.search.space import Choice, Integer, Uniform
from edt_server.searching.core import SearchCore
from edt_server.service.search_pictures import history, parallel, rung_chart
from edt_server.store.search_rows import TrialRow
from tests.server.searching.playing import Play, search


def rows_of(core):
    """What a service keeps of the trials."""
    return {
        number: TrialRow(
            search="s", number=number, rung=trial.rung, bracket=trial.bracket, params=trial.values, state=trial.state,
            created=1.0, value=core.value(trial), epochs=trial.epochs, job="", parent=None, ended=2.0,
            message="",
        )
        for number, trial in core.trials.items()
    }  # fmt: skip


@pytest.mark.parametrize("algorithm", ["halving", "hyperband", "asha"])
@pytest.mark.parametrize("steps", [30, 40, 55, 10**6])
def test_a_trial_stands_in_each_comparison_that_it_has_reached(algorithm, steps):
    play = Play(search(algorithm=algorithm, epochs=9, min_epochs=1), random.Random(2), fails=0.1)
    if steps < 10**6:
        with pytest.raises(AssertionError, match="does not end"):
            play.run(steps)
    else:
        play.run()
    core, rows = play.core, rows_of(play.core)
    chart = rung_chart(core, rows)
    assert [(row.bracket, row.budget) for row in chart.rows] == [(view.bracket, view.budget) for view in core.rungs()]
    for row in chart.rows:
        assert Counter(dot.fate for dot in row.dots)["promoted"] == row.promoted
        assert len(row.dots) <= row.trials
        cut = row.cut(chart.maximize)
        if algorithm == "halving" and cut is not None:
            assert all(dot.value >= cut for dot in row.dots if dot.fate == "pruned")
    best = history(core, rows, "number").bests()
    assert best
    if core.best is not None:
        assert best[-1].at == core.best.number == min(core.trials.values(), key=core.standing).number
    lines = parallel(core, rows).ordered()
    assert [dot for dot, _ in lines][-1] == best[-1]
    assert len(lines) == sum(core.value(trial) is not None for trial in core.trials.values())
    assert draw_rungs(chart)
    assert draw_history(history(core, rows, "time"))


def test_each_kind_of_hyper_parameter_has_its_axis():
    space = {
        "lr": Uniform(low=1e-4, high=0.1, log=True),
        "units": Uniform(low=3, high=9, base=2.0),
        "depth": Integer(low=1, high=6),
        "kind": Choice(values=("a", True, 3)),
    }
    core = SearchCore(search(space=space, algorithm="random", trials=2))
    chart = parallel(core, {})
    assert [(axis.low, axis.high, axis.log) for axis in chart.axes[:3]] == [
        (1e-4, 0.1, True),
        (8, 512, True),
        (1, 6, False),
    ]
    assert chart.axes[3].choices == ("a", "True", "3")
    assert "no trial has a value" in draw_parallel(chart)
