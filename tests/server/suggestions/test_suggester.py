"""Every sampler answers equally: asked twice, in another order of arrival, from nothing, and after a restart."""

from __future__ import annotations

import random
from hashlib import sha256

import msgspec
import optuna
import pytest
import torch
from optuna.samplers import TPESampler

from edt_sdk.schemas.search.space import choice, integer, log, uniform
from edt_sdk.schemas.search.views import TrialState
from edt_server.searching import PastTrial
from edt_server.suggestions import ALGORITHMS
from edt_server.suggestions.questions import NoSuggestion, Suggested, seed_of
from edt_server.suggestions.suggester import Suggester
from tests.server.suggestions.asked import SPACE, Lanes, answered, asking, suggestions

# Enough of them that each sampler has left its random beginning: two populations, or more than the first random ones.
SEARCHES = {
    "random": (12, {}),
    "qmc": (12, {}),
    "tpe": (40, {}),
    "gp": (11, {"n_startup_trials": 3}),
    "cmaes": (40, {"popsize": 5}),
    "nsga2": (40, {"population_size": 6}),
}
LEARNING = ("tpe", "gp", "cmaes", "nsga2")
# In `make test` tpe stands for all of them.
TPE_FIRST = [pytest.param(each, marks=() if each == "tpe" else pytest.mark.long) for each in LEARNING]


@pytest.fixture(autouse=True)
def as_in_its_process():
    """No log, and one thread, with which a suggestion of gp is many times faster on a busy machine."""
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


pytestmark = pytest.mark.filterwarnings("ignore")


async def searched(algorithm, ask, *, name=None, number=None, **more):
    """The trials of a whole search, asked for one by one through `ask`, by the algorithm or another `name`."""
    number, options = number or SEARCHES[algorithm][0], SEARCHES[algorithm][1]
    lanes, more = Lanes(), {"space": SPACE, **more}
    for at in range(number):
        question = asking(name or algorithm, at, options=options if name in (None, algorithm) else {}, **more)
        (found,) = await ask(question, lanes.log)
        assert {name: parameter.fitted(found.values[name]) for name, parameter in more["space"].items()} == found.values
        lanes.begin(found)
    return lanes


def values_of(told):
    """What counts: CMA-ES writes memory that nothing has set into its state, and reads none of it."""
    return [(each.number, each.values) for each in told]


def told_whole(suggester, ask, log):
    """The values of a suggester that is told everything at once."""
    answer = suggester.answer(msgspec.structs.replace(ask, since=0, history=tuple(log)))
    assert isinstance(answer, Suggested), answer
    return values_of(answer.suggestions)


def telling(suggester):
    """Ask as `Suggestions` does: with what is new."""
    known = {}

    async def ask(question, log):
        since = known.get(question.search, 0)
        answer = suggester.answer(msgspec.structs.replace(question, since=since, history=tuple(log[since:])))
        known[question.search] = 0 if question.algorithm in ("random", "qmc") else len(log)
        assert isinstance(answer, Suggested), answer
        return answer.suggestions

    return ask


def test_all_algorithms_are_tried():
    assert set(SEARCHES) == set(ALGORITHMS)


@pytest.mark.asyncio
@pytest.mark.parametrize("algorithm", SEARCHES)
async def test_equal_answers_whatever_the_process_has_seen(algorithm):
    suggester = Suggester()
    ask = telling(suggester)
    lanes = await searched(algorithm, ask)
    number, options = SEARCHES[algorithm]
    question = asking(algorithm, number, options=options)
    kept = values_of(await ask(question, lanes.log))
    assert values_of(await ask(question, lanes.log)) == kept, "asked twice"
    assert told_whole(Suggester(), question, lanes.log) == kept, "from nothing"
    whole = lanes.whole()
    for seed in range(3):
        random.Random(seed).shuffle(whole)
        assert told_whole(Suggester(), question, whole) == kept, "in another order of arrival"
    assert told_whole(suggester, question, whole) == kept, "from nothing in the same process"


@pytest.mark.asyncio
@pytest.mark.parametrize("algorithm", TPE_FIRST)
async def test_equal_searches_in_other_processes_that_are_killed(algorithm):
    """The whole search again, by real processes, one of which is killed in the middle: the same values."""
    expected = await searched(algorithm, telling(Suggester()))
    number, _ = SEARCHES[algorithm]
    there, asked = suggestions(), []

    async def ask(question, log):
        asked.append(question)
        if len(asked) == number // 2:
            await there.close()
        return (await answered(there, question, log)).suggestions

    try:
        assert values_of((await searched(algorithm, ask)).log) == values_of(expected.log)
    finally:
        await there.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("algorithm", LEARNING)
async def test_the_history_and_the_seed_matter(algorithm):
    """A search for the largest goes elsewhere from the same first trial, and one with another seed has another."""
    searches = [
        values_of((await searched(algorithm, telling(Suggester()), **more)).whole())
        for more in ({}, {"direction": "maximize"}, {"seed": 8})
    ]
    assert searches[0][0] == searches[1][0] != searches[2][0]
    assert searches[0][-4:] != searches[1][-4:]


@pytest.mark.asyncio
@pytest.mark.parametrize("algorithm", TPE_FIRST)
async def test_it_learns(algorithm):
    """The best of 24 trials is better than that of a random search, by the sum of some seeds."""
    space = {"lr": log(1e-4, 1e-1), "depth": uniform(0, 6), "dropout": uniform(0, 0.5)}
    seeds = range(1 if algorithm == "gp" else 4)

    async def best(name, seed):
        ask = telling(Suggester())
        lanes = await searched(algorithm, ask, name=name, space=space, seed=seed, number=24)
        return min(told.value for told in lanes.whole() if told.value is not None)

    learned = sum([await best(algorithm, seed) for seed in seeds])
    assert learned < sum([await best("random", seed) for seed in seeds])


def test_a_state_that_is_not_handed_back_is_missed():
    """CMA-ES and NSGA-II keep their state with the trials: without it they begin anew."""
    for algorithm, key in (("cmaes", b"cma:"), ("nsga2", b"generation")):
        answer = Suggester().answer(asking(algorithm, 0, 1, 2, history=_ended(4)))
        assert any(key in each.sampler_state for each in answer.suggestions), algorithm
    answer = Suggester().answer(asking("tpe", 4, history=_ended(4)))
    assert answer.suggestions[0].sampler_state == b""


def _ended(number):
    values = Suggester().answer(asking("random", *range(number))).suggestions
    return tuple(PastTrial(each.number, each.values, TrialState.FINISHED, float(each.number)) for each in values)


def test_a_batch_counts_the_trials_before_as_running():
    history, numbers = _ended(20), (20, 21, 22)
    together = Suggester().answer(asking("tpe", *numbers, history=history)).suggestions
    running, one_by_one = list(history), []
    for number in numbers:
        one_by_one += Suggester().answer(asking("tpe", number, history=tuple(running))).suggestions
        running.append(PastTrial(number, one_by_one[-1].values, TrialState.RUNNING))
    assert list(together) == one_by_one
    suggester = Suggester()
    suggester.answer(asking("tpe", *numbers, history=history))
    assert suggester.answer(asking("tpe", 30, since=20)) == Suggester().answer(asking("tpe", 30, history=history))
    # Also where an entry tells of a trial that is asked for again.
    suggester.answer(asking("tpe", 19, since=20))
    assert suggester.answer(asking("tpe", 30, since=20)) == Suggester().answer(asking("tpe", 30, history=history))


def test_a_held_trial_that_goes_on_replaces_its_entry():
    history = _ended(20)
    held = [PastTrial(3, history[3].values, TrialState.HELD, reports={1: 9.0})]
    suggester = Suggester()
    suggester.answer(asking("tpe", 20, history=(*history[:3], *held, *history[4:])))
    later = suggester.answer(asking("tpe", 20, since=20, history=(history[3],)))
    assert later == Suggester().answer(asking("tpe", 20, history=history))


def test_a_failed_trial_and_a_result_that_is_no_number_teach_nothing():
    history = _ended(20)
    question = asking("tpe", 30, history=history)
    more = PastTrial(20, history[0].values, TrialState.FAILED)
    endless = PastTrial(20, history[0].values, TrialState.FINISHED, None)
    plain = Suggester().answer(question)
    for each in (more, endless):
        assert Suggester().answer(msgspec.structs.replace(question, history=(*history, each))) == plain
    low = msgspec.structs.replace(endless, value=-9.0)
    assert Suggester().answer(msgspec.structs.replace(question, history=(*history, low))) != plain


def test_good_trials_by_the_options_of_wmla():
    """The same history, and more or fewer of its trials count as good."""
    question = asking("tpe", 20, history=_ended(20))
    answers = {
        Suggester().answer(msgspec.structs.replace(question, options=options)).suggestions[0].values["lr"]
        for options in (
            {},
            {"good_ratio": 0.5},
            {"good_ratio": 0.5, "good_most": 4},
            {"n_ei_candidates": 500},
            {"n_startup_trials": 50},
        )
    }
    assert len(answers) == 5
    assert Suggester().answer(msgspec.structs.replace(question, options={"good_ratio": 0.1})) == Suggester().answer(
        question
    )


def test_the_seed_of_a_suggestion():
    assert seed_of(5, 12) == int.from_bytes(sha256(b"5:12").digest()[:4], "big")
    question = asking("tpe", 3, seed=5)
    assert Suggester().answer(question) == Suggester().answer(
        msgspec.structs.replace(question, seed=9, options={"seed": 5})
    )
    assert Suggester().answer(question) != Suggester().answer(msgspec.structs.replace(question, seed=9))


def test_a_sampler_that_raises_is_a_refusal(monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(TPESampler, "sample_relative", broken)
    refused = Suggester().answer(asking("tpe", 0))
    assert refused == NoSuggestion("The algorithm tpe cannot suggest a trial: RuntimeError: no such luck")
    assert "Traceback" in capsys.readouterr().err


def test_values_of_choices_that_are_equal_to_python():
    space = {"c": choice(1, True, 0, False), "n": integer(1, 2)}
    history = tuple(
        PastTrial(at, {"c": value, "n": 1}, TrialState.FINISHED, 0.0 if value is True else 9.0)
        for at, value in enumerate((1, True, 0, False) * 6)
    )
    (found,) = Suggester().answer(asking("tpe", 24, space=space, history=history)).suggestions
    assert found.values["c"] is True
