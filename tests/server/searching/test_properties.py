"""What a search promises: equal searches decide equally, whatever the order of arrival; every search ends.

`EDT_SEARCH_PLAYS` is how often each search is played, 6 by default, and `EDT_SEARCH_EXAMPLES` how many searches are
made up.
"""

from __future__ import annotations

import json
import os
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_sdk.schemas.search.views import Decision, SearchState, TrialReport
from edt_server.searching import preview
from edt_server.searching.core import SearchCore
from edt_server.searching.events import PointsAdded, Reported, SearchStarted
from edt_server.searching.replay import difference, events, rebuild
from tests.server.searching.playing import Play, check_ended, search

PLAYS = int(os.environ.get("EDT_SEARCH_PLAYS", "6"))
RUNGS = {"epochs": 9, "min_epochs": 1}
SEARCHES = {
    "random": {"algorithm": "random", "epochs": 3},
    "random-until-it-ends": {"algorithm": "random"},
    "halving": {"algorithm": "halving", **RUNGS},
    "halving-tpe": {"algorithm": "halving", "sampler": "tpe", **RUNGS},
    "hyperband": {"algorithm": "hyperband", "trials": 60, **RUNGS},
    "hyperband-tpe": {"algorithm": "hyperband", "sampler": "tpe", "trials": 70, **RUNGS},
    "tpe": {"algorithm": "tpe", "epochs": 2, "lanes": 5, "cost": "width/64"},
    "asha": {"algorithm": "asha", "lanes": 8, **RUNGS},
    "asha-tpe": {"algorithm": "asha", "sampler": "tpe", "lanes": 8, "cost": "width/64", "trials": 40, **RUNGS},
    "median": {"algorithm": "median", "sampler": "tpe", "lanes": 4, **RUNGS},
    "population": {"algorithm": "pbt", "trials": 8, "epochs": 9, "min_epochs": 2},
    "large-population": {"algorithm": "pbt", "trials": 21, "options": {"quantile": 0.5}, **RUNGS},
    "resource": {"algorithm": "hyperband", "resource": "epochs", "lanes": 4, "trials": 50, **RUNGS},
    "halving-resource": {"algorithm": "halving", "resource": "epochs", "lanes": 4, "trials": 9, **RUNGS},
    "plug-in": {"algorithm": "my-own", "lanes": 4, "epochs": 2, "trials": 11},
    "maximize": {"algorithm": "asha", "direction": "maximize", "value": "best", "lanes": 3, **RUNGS},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_preview_counts_what_the_search_then_trains(name):
    spec = search(**SEARCHES[name]).resolved()
    foreseen, played = preview.play(spec), Play(spec, random.Random(0)).run()
    assert [(each.bracket, each.budget) for each in foreseen] == [(r.bracket, r.budget) for r in played.core.rungs()]
    told = preview.summary(spec, foreseen)
    assert f"{spec.trials} trials" in told
    if spec.order != "rungs" and spec.kind.rungs:
        assert "about" in told
    else:
        assert "about" not in told
        assert foreseen == played.core.rungs()
        if spec.epochs:
            assert preview.epochs(spec, foreseen) == (0 if spec.resource else played.trained.total())


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("fails", [0.0, 0.08])
def test_equal_searches_decide_equally_in_whatever_order_things_come(name, fails):
    spec = search(**SEARCHES[name])
    first = Play(spec, random.Random(0), slots=1, fails=fails).run()
    check_ended(first)
    table, decisions, different = first.table(), first.decisions(), 0
    for seed in range(1, PLAYS):
        play = Play(spec, random.Random(seed), slots=1 + seed * 3 % 17, fails=fails).run()
        check_ended(play)
        assert play.table() == table
        assert play.decisions() == decisions
        different += play.events != first.events
    if name != "plug-in":  # asked in batches of four, it may well come in the same order
        assert different, "or the test would prove nothing: things did come in other orders"


@pytest.mark.parametrize("name", ["asha-tpe", "tpe", "halving", "median"])
def test_in_the_order_free_they_differ(name):
    plays = [Play(search(**SEARCHES[name], order="free"), random.Random(seed), slots=16).run() for seed in range(5)]
    for play in plays:
        check_ended(play)
    assert len({repr(play.table()) for play in plays}) > 1


@given(
    seed=st.integers(0, 2**32),
    name=st.sampled_from(sorted(SEARCHES)),
    trials=st.integers(1, 40),
    lanes=st.integers(1, 20),
    slots=st.integers(1, 20),
    eta=st.sampled_from([2, 2.5, 3, 4]),
    epochs=st.integers(1, 30),
    fails=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    free=st.booleans(),
)
@settings(max_examples=int(os.environ.get("EDT_SEARCH_EXAMPLES", "150")), deadline=None)
def test_every_search_ends(seed, name, trials, lanes, slots, eta, epochs, fails, free):
    fields = SEARCHES[name] | {"lanes": lanes, "eta": eta}
    fields["trials"] = max(trials, 4 if fields["algorithm"] in ("halving", "hyperband", "asha") else 2)
    if "min_epochs" in fields:
        # A population is compared before its end.
        fields |= {"epochs": epochs + (fields["algorithm"] == "pbt"), "min_epochs": min(fields["min_epochs"], epochs)}
    spec = search(**fields)
    if free and "free" in spec.kind.orders:
        spec = search(**fields, order="free")
    play = Play(spec, random.Random(seed), slots=slots, fails=fails).run()
    check_ended(play)
    assert (play.core.state is SearchState.FAILED) == (play.core.best is None)
    assert_replays(play, spec)


def assert_replays(play: Play, spec) -> None:
    """What rows keep of a search is enough to decide it again."""
    reports, decisions, core = [], [], None
    core = type(play.core)(spec)
    for event in play.events:
        step = core.apply(event)
        if isinstance(event, Reported) and step.seq:
            reports.append(TrialReport(trial=event.number, budget=event.budget, metrics=event.metrics, seq=step.seq))
        decisions += step.decisions
    # Through JSON, as rows are.
    reports = msgspec.convert(json.loads(msgspec.json.encode(reports)), list[TrialReport])
    recorded = msgspec.convert(json.loads(msgspec.json.encode(decisions)), list[Decision])
    random.Random(0).shuffle(reports)
    again, log = rebuild(spec, events(reports, recorded))
    assert difference(recorded, msgspec.convert(msgspec.to_builtins(log), list[Decision])) == ""
    assert {n: (t.values, t.state) for n, t in again.trials.items()} == {
        n: (t.values, t.state) for n, t in play.core.trials.items()
    }
    assert (again.state, again.best and again.best.number) == (core.state, core.best and core.best.number)


def test_a_replay_of_given_values_finds_no_difference():
    core = SearchCore(spec := search(algorithm="random", trials=2))
    log = [
        *core.apply(PointsAdded(({"lr": 0.1, "width": 32},) * 2)).decisions,
        *core.apply(SearchStarted()).decisions,
    ]
    recorded = msgspec.convert(json.loads(msgspec.json.encode(log)), list[Decision])
    assert difference(recorded, rebuild(spec, events([], recorded))[1]) == ""


def test_a_replay_names_the_first_entry_that_differs():
    play = Play(search(**SEARCHES["halving"]), random.Random(0)).run()
    changed = [*play.log]
    changed[30] = msgspec.structs.replace(changed[30], text="trial 3 goes on for fun")
    assert f"Entry {changed[30].index} is recorded as 'trial 3 goes on for fun'" in difference(changed, play.log)
    assert difference(play.log[:-1], play.log).endswith(f"now there are {len(play.log)}.")


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_goes_on_after_the_server_died_as_if_nothing_had_happened(name):
    spec = search(**SEARCHES[name])
    whole = Play(spec, random.Random(1), fails=0.05).run()
    for at in (1, 7, len(whole.events) // 2, len(whole.events) - 2):
        play = Play(spec, random.Random(at), fails=0.05)
        for event in whole.events[:at]:
            play.tell(event)
        play.run()
        assert play.table() == whole.table()
        assert play.decisions() == whole.decisions()
