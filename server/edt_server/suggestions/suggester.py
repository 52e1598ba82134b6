"""Run `python -m edt_server.suggestions.suggester <pid of the server>`: suggest values with Optuna's samplers.

A suggestion is a function of the search's seed, the trial's number and the history: each one has a fresh sampler, whose
seed is made of the first two. What is kept here is only a cache, and a restarted process answers the same.

Optuna's samplers read trials through a storage. `TrialHistory` is one whose trials may change, as a held trial goes on.
What a sampler writes goes with the trial to the server and comes back with its history, because CMA-ES and NSGA-II
keep their state there.
"""

from __future__ import annotations

import contextlib
import math
import sys
import traceback
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from edt_sdk.schemas.search import views
from edt_sdk.schemas.search.space import Choice, Integer, Parameter, Space, Value
from edt_server.searching import PastTrial
from edt_server.suggestions.questions import (
    Answer,
    Ask,
    NoSuggestion,
    Suggested,
    Suggestion,
    seed_of,
    serve,
)

_SAMPLERS: Mapping[str, Callable[..., BaseSampler]] = {
    "random": RandomSampler,
    "tpe": TPESampler,
    "gp": GPSampler,
    "cmaes": CmaEsSampler,
    "nsga2": NSGAIISampler,
}
_GOOD = frozenset({"good_ratio", "good_most"})  # how many finished trials count as good to tpe
# Samplers that read what they have written. What the others write is dropped.
_WRITING = frozenset({"cmaes", "nsga2"})
# Another trial is held or was pruned, which is the same to a sampler.
_STATES = {
    views.TrialState.RUNNING: TrialState.RUNNING,
    views.TrialState.FINISHED: TrialState.COMPLETE,
    views.TrialState.FAILED: TrialState.FAIL,
}


class TrialHistory(InMemoryStorage):
    """The trials of a search as Optuna's samplers read them, by their numbers, which are their ids too."""

    def __init__(self, space: Space, direction: str) -> None:
        super().__init__()
        self._space = space
        # What has only one value needs no sampler.
        self._only = {name: each.at(0) for name, each in space.items() if each.count == 1}
        self._distributions = {name: _distribution(each) for name, each in space.items() if name not in self._only}
        # True and 1 are the same to Optuna, so it chooses among the places of choices.
        self._choices = {
            name: {(isinstance(value, bool), value): at for at, value in enumerate(each.values)}
            for name, each in space.items()
            if isinstance(each, Choice)
        }
        self._trials: dict[int, FrozenTrial] = {}
        # What samplers have written about the study, by the trial that they were asked for.
        self._shared: dict[int, dict[str, Any]] = {}
        self._written: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        optuna.create_study(storage=self, study_name="search", direction=StudyDirection[direction.upper()])

    def tell(self, told: PastTrial) -> None:
        """Take an entry."""
        written = {} if told.number not in self._trials else self._trials[told.number].system_attrs
        if told.sampler_state:
            written, self._shared[told.number] = msgspec.msgpack.decode(told.sampler_state)
        params = {name: self._inward(name, told.values[name]) for name in self._distributions}
        state = _STATES.get(told.state, TrialState.PRUNED)
        trial = _trial(told.number, state, params, self._distributions, written)
        trial.intermediate_values = {at: value for at, value in sorted(told.reports.items()) if value is not None}
        if state is TrialState.COMPLETE:
            # Optuna knows no result that is not finite. It ranks last, as a failed trial does.
            if told.value is None:
                trial.state = TrialState.FAIL
            else:
                trial.values = [told.value]
        self._trials[told.number] = trial

    def suggest(self, sampler: BaseSampler, number: int) -> Suggestion:
        """Return the values that the sampler suggests for a trial, and what it has written."""
        self._written = {}, {}
        study = optuna.load_study(storage=self, study_name="search", sampler=sampler)
        trial = _trial(number, TrialState.RUNNING, {}, {}, {})
        sampler.before_trial(study, trial)
        relative = sampler.sample_relative(study, trial, sampler.infer_relative_search_space(study, trial))
        values: dict[str, Value] = {}
        for name, parameter in self._space.items():
            if name in self._only:
                values[name] = self._only[name]
                continue
            distribution = self._distributions[name]
            raw = relative[name] if name in relative else sampler.sample_independent(study, trial, name, distribution)
            trial.params[name], trial.distributions[name] = raw, distribution
            values[name] = parameter.values[int(raw)] if isinstance(parameter, Choice) else parameter.real(raw)
        return Suggestion(number, values, msgspec.msgpack.encode(self._written))

    @contextlib.contextmanager
    def supposing(self) -> Iterator[None]:
        """Forget at the end of the block what is told in it."""
        before = dict(self._trials), dict(self._shared)
        try:
            yield
        finally:
            self._trials, self._shared = before

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials in these states. They are never copied, as samplers do not change them."""
        found = (self._trials[number] for number in sorted(self._trials))
        return [trial for trial in found if states is None or trial.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Keep what a sampler writes about the trial that it is asked for."""
        self._written[0][key] = value

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """Return what samplers have written about the study, for the lowest number where two differ."""
        found = dict(self._written[1])
        for number in sorted(self._shared, reverse=True):
            found |= self._shared[number]
        return found

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Keep what a sampler writes about the study."""
        self._written[1][key] = value

    def _inward(self, name: str, value: Value) -> Any:
        parameter = self._space[name]
        if isinstance(parameter, Choice):
            return self._choices[name][isinstance(value, bool), value]
        if isinstance(parameter, Integer):
            return value
        number = float(value) if parameter.base is None else math.log(float(value), parameter.base)
        # A value is rounded to 12 digits, so it may lie beyond an end by less than that.
        return min(max(number, parameter.low), parameter.high)


def _trial(
    number: int,
    state: TrialState,
    params: dict[str, Any],
    distributions: dict[str, BaseDistribution],
    written: dict[str, Any],
) -> FrozenTrial:
    return FrozenTrial(
        number=number, trial_id=number, state=state, value=None, datetime_start=None, datetime_complete=None,
        params=params, distributions=distributions, user_attrs={}, system_attrs=written, intermediate_values={},
    )  # fmt: skip


def _distribution(parameter: Parameter) -> BaseDistribution:
    if isinstance(parameter, Choice):
        return CategoricalDistribution(range(len(parameter.values)))
    if isinstance(parameter, Integer):
        return IntDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)


class Suggester:
    """Answers questions, and keeps the histories of all searches that have asked."""

    def __init__(self) -> None:
        self._histories: dict[str, TrialHistory] = {}

    def answer(self, ask: Ask) -> Answer:
        """Return the answer. An error of a sampler is a refusal, because the same question has it again."""
        try:
            found = in_sequence(ask) if ask.algorithm == "qmc" else self._suggested(ask)
            return Suggested(suggestions=tuple(found))
        except Exception as wrong:
            traceback.print_exc()
            return NoSuggestion(
                f"The algorithm {ask.algorithm} cannot suggest a trial: {type(wrong).__name__}: {wrong}"
            )

    def _suggested(self, ask: Ask) -> Iterator[Suggestion]:
        if ask.since == 0:
            self._histories[ask.search] = TrialHistory(ask.space, ask.direction)
        history = self._histories[ask.search]
        for told in ask.history:
            history.tell(told)
        # The caller tells of these trials when they count.
        with history.supposing():
            for number in ask.numbers:
                found = history.suggest(_sampler(ask.algorithm, ask.options, seed_of(_seed(ask), number)), number)
                if ask.algorithm not in _WRITING:
                    found = Suggestion(number, found.values)
                history.tell(
                    PastTrial(number, found.values, views.TrialState.RUNNING, sampler_state=found.sampler_state)
                )
                yield found


def in_sequence(ask: Ask) -> Iterator[Suggestion]:
    """Yield values that fill the space evenly: the trial's number is the place in the search's scrambled sequence.

    Optuna's own sampler of it counts on in the study and draws choices at random, so its values depend on what it was
    asked before. A batch that is asked for before anything has ended would be random altogether.
    """
    from numpy.random import default_rng
    from scipy.stats.qmc import Sobol  # type: ignore[import-untyped]

    for number in ask.numbers:
        sequence = Sobol(len(ask.space), scramble=True, rng=default_rng(_seed(ask)))
        if number:  # it cannot skip none
            sequence.fast_forward(number)
        (point,) = sequence.random(1)
        parts = zip(ask.space.items(), point, strict=True)
        yield Suggestion(number, {name: parameter.between(float(part)) for (name, parameter), part in parts})


def _seed(ask: Ask) -> int:
    return int(ask.options.get("seed", ask.seed))


def _sampler(algorithm: str, options: Mapping[str, Any], seed: int) -> BaseSampler:
    """Return a fresh sampler for one trial."""
    given = {name: value for name, value in options.items() if name not in ("seed", *_GOOD)}
    if not _GOOD.isdisjoint(options):
        ratio, most = options.get("good_ratio", 0.1), options.get("good_most", 25)
        given["gamma"] = lambda finished: min(math.ceil(ratio * finished), most)
    if algorithm == "cmaes":
        given["consider_pruned_trials"] = True
    return _SAMPLERS[algorithm](seed=seed, **given)


def main(argv: Sequence[str]) -> None:
    """Answer the server's questions on stdin."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    serve(int(argv[1]), Suggester().answer)


if __name__ == "__main__":
    main(sys.argv)
