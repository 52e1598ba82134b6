"""What a search decides in cases small enough to work out by hand, and what it does with events from outside."""

from __future__ import annotations

import heapq
import random

import pytest

from edt_sdk.schemas.errors import Conflict, Unprocessable
from edt_sdk.schemas.search.space import choice, integer
from edt_sdk.schemas.search.views import SearchState, TrialState
from edt_server.searching import AskValues
from edt_server.searching.core import SearchCore
from edt_server.searching.events import (
    Answered,
    PointsAdded,
    Reported,
    SearchPaused,
    SearchResumed,
    SearchStarted,
    SearchStopped,
    TimeUp,
    TrialEnded,
    TrialFailed,
    TrialsRaised,
)
from edt_server.searching.rungs import budgets
from tests.server.searching.playing import SPACE, Play, check_ended, fraction, loss, search

RUNGS = {"epochs": 9, "min_epochs": 1}


def started(**changes) -> SearchCore:
    """A search that runs, its first questions answered."""
    core = SearchCore(search(**changes))
    core.apply(SearchStarted())
    answer(core)
    return core


def answer(core: SearchCore) -> None:
    for ask in core.asks():
        core.apply(Answered(ask.numbers[0], tuple(values(core, number) for number in ask.numbers)))


def values(core: SearchCore, number: int):
    return {name: each.between(fraction(number)) for name, each in core.spec.space.items()}


def report(core: SearchCore, number: int, value: float | None, budget: int = 0):
    return core.apply(Reported(number, budget or core.trials[number].budget, {"loss": value}))


def moves(core, step):
    """The trials that have come to an end or are held."""
    changed = {number: core.trials[number] for number in step.changed}
    return {number: trial.state for number, trial in changed.items() if not trial.open}


def last(core, step):
    return step.decisions[-1].text


@pytest.mark.parametrize(
    ("epochs", "least", "eta", "found"),
    [
        *((27, 1, 3, [1, 3, 9, 27]), (20, 1, 3, [1, 3, 9, 20]), (8, 2, 2, [2, 4, 8]), (5, 5, 3, [5])),
        (10, 1, 2.5, [1, 2, 6, 10]),
    ],
)
def test_rungs_grow_by_eta_up_to_the_whole_trial(epochs, least, eta, found):
    assert budgets(search(algorithm="halving", epochs=epochs, min_epochs=least, eta=eta).resolved()) == found


def test_halving_says_who_goes_on_and_why():
    core = started(algorithm="halving", trials=6, eta=2, epochs=4, min_epochs=1)
    assert [trial.number for trial in core.runnable(4)] == [0, 1, 2, 3]
    for number, value in enumerate([0.5, 0.2, float("nan"), 0.2, 0.9]):
        assert moves(core, report(core, number, value)) == {number: TrialState.HELD}
    step = report(core, 5, 0.1)
    assert [each.text for each in step.decisions] == [
        "trial 5 goes on to 2 epochs: 1st of 6, the best 3 do",
        "trial 1 goes on to 2 epochs: 2nd of 6, the best 3 do",
        "trial 3 goes on to 2 epochs: 3rd of 6, the best 3 do",
        "trial 0 ends after 1 epoch: 4th of 6, the best 3 go on",
        "trial 4 ends after 1 epoch: 5th of 6, the best 3 go on",
        "trial 2 ends after 1 epoch: 6th of 6, the best 3 go on",
    ]
    assert len({each.inputs for each in step.decisions}) == 1
    assert [(trial.number, trial.rung, trial.budget) for trial in core.runnable(9)] == [(1, 1, 2), (3, 1, 2), (5, 1, 2)]
    counts = [(rung.budget, rung.trials, rung.reported, rung.promoted) for rung in core.rungs()]
    assert counts == [(1, 6, 6, 3), (2, 3, 0, 0)]
    for number in (1, 3, 5):
        step = report(core, number, 0.1)
    assert (core.trials[1].rung, core.trials[1].budget) == (2, 4)
    assert step.decisions[0].text == "trial 1 goes on to 4 epochs: the best of 3"
    step = report(core, 1, 0.04)
    assert (core.state, core.message) == (SearchState.FINISHED, "The best is trial 1: loss 0.04.")
    assert moves(core, step) == {1: TrialState.FINISHED}


def test_ties_go_to_the_lower_number_and_differences_beyond_twelve_digits_do_not_count():
    core = started(algorithm="halving", trials=3, **RUNGS)
    report(core, 0, 0.3 + 1e-16)
    report(core, 1, 0.1 + 0.2)
    assert "trial 0 goes on" in report(core, 2, 0.3).decisions[0].text


@pytest.mark.parametrize("seed", range(4))
def test_the_brackets_of_hyperband_are_those_of_the_table(seed):
    play = Play(search(algorithm="hyperband", trials=49, epochs=27, min_epochs=1), random.Random(seed)).run()
    ran = [(rung.bracket, rung.budget, rung.trials) for rung in play.core.rungs()]
    assert ran == [
        *((0, 1, 27), (0, 3, 9), (0, 9, 3), (0, 27, 1)),
        *((1, 3, 12), (1, 9, 4), (1, 27, 1)),
        *((2, 9, 6), (2, 27, 2)),
        (3, 27, 4),
    ]


def by_definition(spec, values):
    """The virtual clock exactly as its pseudo-code has it: the starts and promotions in their order."""
    at, eta, found, queue, now = budgets(spec), spec.eta, [], [], 0.0
    recorded = [[] for _ in at]
    promoted, new, free = set(), iter(range(spec.trials)), spec.lanes

    def next_work():
        for rung in reversed(range(len(at) - 1)):
            ranked = sorted(recorded[rung])
            for _, _, number in ranked[: int(len(ranked) / eta)]:
                if (rung, number) not in promoted and _finite(number, rung):
                    promoted.add((rung, number))
                    return number, rung + 1
        number = next(new, None)
        return None if number is None else (number, 0)

    def _finite(number, rung):
        return loss(values[number], at[rung]) == loss(values[number], at[rung])

    while True:
        while free and (work := next_work()) is not None:
            number, rung = work
            free -= 1
            found.append((number, rung))
            width = at[rung] - (at[rung - 1] if rung else 0)
            heapq.heappush(queue, (now + width * values[number]["width"] / 64, number, rung))
        if not queue:
            return found
        now, number, rung = heapq.heappop(queue)
        value = loss(values[number], at[rung])
        recorded[rung].append((value != value, 0 if value != value else round(value, 12), number))
        free += 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("lanes", [1, 3, 16])
def test_the_virtual_clock_does_what_its_definition_says(seed, lanes):
    spec = search(algorithm="asha", lanes=lanes, trials=40, epochs=27, min_epochs=1, cost="width/64", seed=seed)
    play = Play(spec, random.Random(seed), slots=1 + seed).run()
    values = {number: trial.values for number, trial in play.core.trials.items()}
    assert play.opened == by_definition(play.core.spec, values)


def test_under_the_clock_a_trial_is_suggested_from_all_but_the_lanes_before_it():
    core = SearchCore(search(algorithm="tpe", epochs=1, lanes=3, trials=9))
    core.apply(SearchStarted())
    assert core.asks() == (AskValues((0, 1, 2), 0),)
    answer(core)
    report(core, 2, 0.3)
    assert core.asks() == ()  # trial 0 is waited for
    report(core, 1, 0.2)
    report(core, 0, 0.1)
    (ask,) = core.asks()
    assert ask.numbers == (3,)
    assert {past.number: (past.state.value, past.value) for past in core.past(ask.upto)} == {
        0: ("FINISHED", 0.1),
        1: ("RUNNING", None),
        2: ("RUNNING", None),
    }
    assert core.past(ask.upto, ask.upto - 1) == core.past(ask.upto)[-1:]
    answer(core)
    assert {past.number for past in core.past(core.asks()[0].upto) if past.value is not None} == {0, 1}


def test_a_sampler_that_learns_sees_the_iterations_of_hyperband_that_are_complete():
    play = Play(search(algorithm="hyperband", sampler="tpe", trials=70, **RUNGS), random.Random(3)).run()
    assert [len(ask.numbers) for ask in play.asks[:6]] == [9, 5, 3] * 2
    assert [ask.upto for ask in play.asks[:9]] == [0] * 6 + [17] * 3
    assert {past.number for past in play.core.past(17)} == set(range(17))


def test_hyperband_by_new_runs_is_what_wmla_recorded():
    core = started(algorithm="hyperband", resource="epochs", epochs=81, min_epochs=1, lanes=2, trials=8)
    batches = []
    while not core.state.final:
        batch = core.runnable(9)
        batches.append([trial.number for trial in batch])
        assert {trial.values["epochs"] for trial in batch} == {1}
        for trial in reversed(batch):
            core.apply(Reported(trial.number, 1, {"loss": 0.5}))
            core.apply(TrialEnded(trial.number))
        answer(core)
    assert batches == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert {trial.state for trial in core.trials.values()} == {TrialState.FINISHED}


def test_a_rung_of_new_runs_is_followed_by_runs_with_more():
    play = Play(search(algorithm="hyperband", resource="epochs", lanes=4, trials=100, **RUNGS), random.Random(0)).run()
    given = [play.core.trials[number].values["epochs"] for number in range(18)]
    assert given == [1] * 9 + [3] * 3 + [9] + [3] * 5  # the widest bracket, then the next one
    for number in range(9, 13):
        trial = play.core.trials[number]
        assert {**trial.values, "epochs": 0} == {**play.core.trials[trial.parent].values, "epochs": 0}
    best = sorted(range(9), key=lambda number: play.core._book.key(play.core.trials[number]))
    assert [play.core.trials[number].parent for number in (9, 10, 11)] == best[:3]
    assert len(play.core.trials) == 100


def test_a_plug_in_is_asked_for_batches_with_all_results_and_may_end_early():
    core = SearchCore(search(algorithm="my-own", lanes=3, trials=10, epochs=2))
    core.apply(SearchStarted())
    assert core.asks() == (AskValues((0, 1, 2), 0),)
    answer(core)
    for number in (2, 0, 1):
        report(core, number, 0.5)
    assert core.asks() == (AskValues((3, 4, 5), 3),)
    assert [past.number for past in core.past(3)] == [0, 1, 2]
    step = core.apply(Answered(3, ({"lr": 0.1, "width": 32},)))
    assert step.decisions[-1].text == "there are no values for trial 4: no more trials start"
    assert core.asks() == ()
    report(core, 3, 0.4)
    assert (core.state, core.message) == (SearchState.FINISHED, "The best is trial 3: loss 0.4.")


def test_a_plug_in_that_has_nothing_more_leaves_what_runs_and_what_was_given():
    given = {"lr": 0.05, "width": 64}
    core = SearchCore(search(algorithm="my-own", lanes=3, trials=10, epochs=1, points=(given,)))
    core.apply(SearchStarted())
    step = core.apply(Answered(1, (), note="It has said so."))
    assert [each.text for each in step.decisions] == [
        "It has said so.", "there are no values for trial 1: no more trials start",
    ]  # fmt: skip
    assert step.decisions[0].event == {"type": "Answered", "number": 1, "values": [], "note": "It has said so."}
    assert [trial.number for trial in core.runnable(9)] == [0]
    report(core, 0, 0.4)
    assert (core.state, core.wanted) == (SearchState.FINISHED, 1)


def test_a_plug_in_is_told_each_result_once_also_after_a_batch_of_another_size():
    core = SearchCore(search(algorithm="my-own", lanes=3, trials=4, epochs=1))
    core.apply(SearchStarted())
    answer(core)
    for number in range(3):
        report(core, number, 0.5)
    core.apply(TrialsRaised(6))
    told = []
    while not core.state.final:
        (ask,) = core.asks()
        told.append([past.number for past in core.past(ask.upto, ask.since)])
        answer(core)
        for trial in core.runnable(9):
            report(core, trial.number, 0.5)
    assert told == [[0, 1, 2], [3], [4, 5]][: len(told)]
    assert len(told) > 1


def test_a_long_batch_of_a_plug_in_is_told_its_results_with_the_first_part():
    core = SearchCore(search(algorithm="my-own", lanes=600, trials=700, epochs=1))
    core.apply(SearchStarted())
    answer(core)
    for number in range(600):
        report(core, number, 0.5)
    assert [(ask.upto, ask.since) for ask in core.asks()] == [(600, 0)]


def test_the_median_rule_ends_a_trial_that_is_worse_than_half_of_the_finished_ones():
    core = started(algorithm="median", trials=7, epochs=3, min_epochs=1, lanes=1, options={"least_finished": 2})
    for number, values in enumerate([(0.5, 0.4, 0.3), (0.7, 0.6, 0.5)]):
        for value in values:
            report(core, number, value)
        answer(core)
    step = report(core, 2, 0.61)
    assert last(core, step).startswith("trial 2 ends after 1 epoch: its best is worse than the median of 2 finished")
    answer(core)
    assert "no worse than the median of 2" in last(core, report(core, 3, 0.45))
    # The best so far counts, not the present value.
    assert "trial 3 goes on to 3 epochs" in last(core, report(core, 3, 0.9))


def test_a_grid_is_counted_and_a_list_is_taken_as_it_is():
    core = started(algorithm="grid", space={"a": integer(1, 3), "b": choice("x", "y")}, trials=0)
    assert [tuple(core.trials[n].values.values()) for n in range(6)] == [(a, b) for a in (1, 2, 3) for b in "xy"]
    core = started(algorithm="list", space={}, trials=0, points=({"a": 1}, {"b": 2, "c": "z"}))
    assert [core.trials[n].values for n in range(2)] == [{"a": 1}, {"b": 2, "c": "z"}]
    assert core.asks() == ()


def test_first_guesses_are_tried_first():
    point = {"lr": 0.0123, "width": 64}
    core = SearchCore(search(algorithm="random", trials=4, points=(point,)))
    core.apply(PointsAdded(({"lr": 5, "width": 32},)))
    core.apply(SearchStarted())
    answer(core)
    assert [core.trials[n].values for n in (0, 1)] == [point, {"lr": 0.1, "width": 32}]
    with pytest.raises(Conflict):
        core.apply(PointsAdded((point,)))


def test_in_the_order_free_guesses_may_come_at_any_time_and_the_log_says_so():
    core = started(algorithm="tpe", order="free", epochs=1, lanes=2, trials=5)
    step = core.apply(PointsAdded(({"lr": 0.05, "width": 32},)))
    assert [(each.kind, each.outside) for each in step.decisions] == [("points", True)]
    report(core, 1, 0.5)
    assert core.trials[2].values == {"lr": 0.05, "width": 32}
    with pytest.raises(Conflict):
        core.apply(PointsAdded(({"lr": 0.05, "width": 32},) * 3))
    with pytest.raises(Unprocessable):
        core.apply(PointsAdded(({"lr": 0.05, "depth": 32},)))


# --- the best ---------------------------------------------------------------------------------------------------------


def test_the_best_stays_it_while_it_trains_on_and_reports_worse():
    core = started(algorithm="halving", trials=3, eta=2, epochs=4, min_epochs=1)
    for number, value in enumerate([0.5, 0.2, 0.9]):
        report(core, number, value)
    assert core.trials[1].budget == 2
    core.apply(Reported(1, 2, {"loss": 0.3}))
    core.apply(Reported(1, 3, {"loss": 0.8}))
    assert (core.best.number, core.value(core.trials[1]), core.trials[1].score) == (1, 0.8, 0.3)
    assert [each.number for each in sorted(core.trials.values(), key=core.standing)] == [1, 0, 2]


def test_a_trial_that_fails_later_or_has_no_number_is_the_best_no_more():
    core = started(algorithm="halving", trials=4, eta=2, epochs=2, min_epochs=1)
    for number, value in enumerate([0.5, 0.2, 0.9, 0.3]):
        report(core, number, value)
    assert core.best.number == 1
    core.apply(TrialFailed(1, "out of memory"))
    assert core.best.number == 3
    report(core, 3, float("nan"))
    assert (core.state, core.best.number) == (SearchState.FINISHED, 0)
    assert [each.number for each in sorted(core.trials.values(), key=core.standing)] == [0, 2, 3, 1]


def test_with_a_resource_the_best_is_a_run_that_had_the_most_of_it():
    core = started(algorithm="halving", resource="epochs", trials=3, epochs=3, min_epochs=1, lanes=3)
    for number, value in enumerate([0.1, 0.2, 0.3]):
        core.apply(Reported(number, 1, {"loss": value}))
        core.apply(TrialEnded(number))
    assert core.best.number == 0
    core.apply(Reported(3, 1, {"loss": 0.15}))
    core.apply(TrialEnded(3))
    assert core.trials[3].values["epochs"] == 3
    assert (core.state, core.best.number) == (SearchState.FINISHED, 3)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_search_pauses_when_its_first_trials_fail_alike():
    core = started(algorithm="random", trials=5, fail_fast=True)
    core.apply(TrialFailed(1, "NameError: x"))
    core.apply(TrialFailed(4, "NameError: x"))
    core.apply(TrialFailed(0, "NameError: x"))
    assert core.state is SearchState.RUNNING
    core.apply(TrialFailed(2, "NameError: x"))
    assert (core.state, core.message) == (SearchState.PAUSED, "Your code, not the values: NameError: x")
    assert core.runnable(9) == []
    core.apply(SearchResumed())
    assert [trial.number for trial in core.runnable(9)] == [3]
    core.apply(TrialFailed(3, "NameError: x"))
    assert core.state is SearchState.FAILED
    said = "No trial has a finite 'loss': 5 of 5 failed; the search has seen no metric. Trial 0: NameError: x"
    assert core.message == said


def test_a_search_whose_last_trial_was_the_third_to_fail_alike_ends_with_the_error():
    core = started(algorithm="random", trials=4, fail_fast=True)
    for number in (3, 0, 1):
        core.apply(TrialFailed(number, "NameError: x"))
    step = core.apply(TrialFailed(2, "NameError: x"))
    assert [each.kind for each in step.decisions] == ["fail", "end"]
    assert core.state is SearchState.FAILED
    assert core.message.endswith("Trial 0: NameError: x")


def test_different_failures_and_a_search_that_is_told_not_to_do_not_pause():
    core = started(algorithm="random", trials=5, fail_fast=True)
    for number, message in enumerate(["a", "b", "a"]):
        core.apply(TrialFailed(number, message))
    assert core.state is SearchState.RUNNING
    core = started(algorithm="random", trials=5)
    for number in range(3):
        core.apply(TrialFailed(number, "a"))
    assert core.state is SearchState.RUNNING


def test_a_trial_without_the_metric_fails_with_what_it_reported():
    core = started(algorithm="halving", trials=3, **RUNGS)
    step = core.apply(Reported(0, 1, {"lss": 0.1, "f1": 0.2}))
    assert moves(core, step) == {0: TrialState.FAILED}
    assert core.trials[0].message == "No 'loss' at 1 epoch: it reported f1, lss."
    core.apply(TrialEnded(1))
    assert core.trials[1].message == "Its script ended before its comparison at 1 epoch: the search has seen f1, lss."
    core = started(algorithm="random", trials=1)
    core.apply(Reported(0, 1, {"f1": 0.2}))
    core.apply(TrialEnded(0))
    assert core.trials[0].message == "Its script ended without a report: the search has seen f1."
    assert core.message.endswith("1 of 1 failed; the search has seen f1.")


def test_the_first_of_two_reports_counts_and_the_log_says_that_they_differ():
    core = started(algorithm="halving", trials=3, **RUNGS)
    assert report(core, 0, 0.5).seq > 0
    assert report(core, 0, 0.5, 1) == type(report(core, 0, 0.5, 1))(0, (), ())
    step = report(core, 0, 0.4, 1)
    assert (step.seq, step.decisions[0].kind, step.decisions[0].outside) == (0, "differs", True)
    assert "after 1 epoch 0.4, and 0.5 before, which counts" in step.decisions[0].text
    assert core.trials[0].reports == {1: 0.5}


def test_a_second_report_counts_no_more_where_the_first_lacked_the_metric():
    core = started(algorithm="random", trials=2)
    assert core.apply(Reported(0, 1, {"f1": 0.5})).seq > 0
    assert core.apply(Reported(0, 1, {"loss": 0.5})).seq == 0  # the store has one report of an epoch
    assert core.trials[0].reports == {}


def test_a_report_beyond_its_budget_or_of_a_trial_that_has_ended_changes_nothing():
    core = started(algorithm="halving", trials=3, **RUNGS)
    for step in (report(core, 0, 0.5, 2), report(core, 0, 0.5), report(core, 0, 0.4, 2), core.apply(TrialEnded(0))):
        assert not step.decisions
    assert core.trials[0].reports == {1: 0.5}
    with pytest.raises(Conflict):
        report(core, 77, 0.5, 1)


# --- from outside -----------------------------------------------------------------------------------------------------


def test_a_stopped_search_goes_on_with_the_same_numbers():
    whole = Play(search(algorithm="halving", trials=9, **RUNGS), random.Random(0)).run()
    play = Play(search(algorithm="halving", trials=9, **RUNGS), random.Random(1))
    play.tell(SearchStarted())
    for _ in range(14):
        play.once()
    step = play.tell(SearchStopped())
    assert (play.core.state, step.changed) == (SearchState.STOPPED, ())
    assert (play.core.asks(), play.core.runnable(9)) == ((), [])
    with pytest.raises(Conflict):
        play.core.apply(SearchStopped())
    play.tell(SearchResumed())
    play.run()
    assert play.table() == whole.table()
    assert [each.kind for each in play.log if each.outside] == ["stop", "resume"]
    check_ended(play)


def test_a_search_that_its_time_ended_says_so_and_may_go_on():
    core = started(algorithm="random", trials=3)
    report(core, 0, 0.5, 1)
    core.apply(TrialEnded(0))
    core.apply(TimeUp())
    assert (core.state, core.message) == (SearchState.FINISHED, "The search ended by its time limit.")
    core.apply(SearchResumed())
    assert [trial.number for trial in core.runnable(9)] == [1, 2]


def test_a_paused_search_takes_reports_and_starts_nothing():
    core = started(algorithm="halving", trials=3, **RUNGS)
    core.apply(SearchPaused("the suggester died"))
    assert core.message == "the suggester died"
    for number in range(3):
        report(core, number, number)
    assert core.runnable(9) == []
    core.apply(SearchResumed())
    assert [trial.number for trial in core.runnable(9)] == [0]
    with pytest.raises(Conflict):
        core.apply(SearchResumed())


def test_more_trials_only_before_the_first_decision_of_a_rung():
    core = started(algorithm="halving", trials=3, **RUNGS)
    with pytest.raises(Conflict):
        core.apply(TrialsRaised(3))
    step = core.apply(TrialsRaised(6))
    assert [each.outside for each in step.decisions] == [True]
    assert core.asks() == (AskValues((3, 4, 5), 0),)
    answer(core)
    for number in range(6):
        report(core, number, number)
    assert [trial.number for trial in core.runnable(9)] == [0, 1]
    before = core._book.seq
    with pytest.raises(Conflict, match="first comparison is decided"):
        core.apply(TrialsRaised(9))
    assert core._book.seq == before
    for number in (0, 1):
        report(core, number, number)
    report(core, 0, 0.0)
    assert core.state is SearchState.FINISHED


@pytest.mark.parametrize("name", ["asha", "tpe", "hyperband", "random"])
def test_more_trials_while_it_runs(name):
    fields = {"algorithm": name, "trials": 9} | (RUNGS if name in ("asha", "hyperband") else {"epochs": 1})
    play = Play(search(**fields), random.Random(0))
    play.tell(SearchStarted())
    play.once()
    play.tell(TrialsRaised(30))
    play.run()
    check_ended(play)
    assert len(play.core.trials) == 30


def test_more_trials_than_a_sampler_can_have_are_refused():
    core = started(algorithm="gp", trials=3, epochs=1, lanes=1)
    with pytest.raises(Unprocessable, match="2,000"):
        core.apply(TrialsRaised(2001))
    assert core.apply(TrialsRaised(2000)).decisions[0].text == "the search gets 2000 trials, not 3"


def test_a_stopped_search_whose_last_trial_reports_is_finished():
    core = started(algorithm="random", trials=1, epochs=1)
    core.apply(SearchStopped())
    report(core, 0, 0.5)
    assert (core.state, core.message) == (SearchState.FINISHED, "The best is trial 0: loss 0.5.")


def test_a_long_question_is_put_in_parts():
    core = SearchCore(search(algorithm="random", trials=600))
    core.apply(SearchStarted())
    asks = core.asks()
    assert [len(ask.numbers) for ask in asks] == [256, 256, 88]
    core.apply(TrialsRaised(700))
    core.apply(Answered(256, tuple(values(core, number) for number in asks[1].numbers)))
    assert core.asks()[:2] == asks[::2], "what is being asked stays the same question"


def test_a_search_that_was_stopped_before_it_started_starts_when_it_goes_on():
    core = SearchCore(search(algorithm="random", trials=2))
    core.apply(SearchStopped())
    core.apply(SearchResumed())
    assert core.asks() == (AskValues((0, 1), 0),)


def test_an_answer_that_the_space_cannot_have_changes_nothing():
    core = SearchCore(search(algorithm="random", trials=2))
    core.apply(SearchStarted())
    for wrong in (
        {"lr": "much", "width": 32},
        {"lr": 0.1},
        {"lr": float("nan"), "width": 32},
        {"lr": 0.1, "width": 33},
    ):
        with pytest.raises(Unprocessable):
            core.apply(Answered(0, ({"lr": 0.1, "width": 32}, wrong)))
    right = {"lr": 0.1, "width": 32}
    for event in (Answered(1, (right,)), Answered(7, (right,)), Answered(0, (right,)), Answered(0, (right,) * 3)):
        with pytest.raises(Conflict):
            core.apply(event)
    assert core.trials == {}
    core.apply(Answered(0, ({"lr": 7.0, "width": 32}, right)))
    assert core.trials[0].values == right
    assert SPACE["lr"].high == 0.1
