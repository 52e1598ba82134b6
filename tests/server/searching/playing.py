"""A search played with workers, a suggester and times that are invented: everything may come in any order."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.search.space import choice, log
from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import TrialState
from edt_server.searching import AskValues
from edt_server.searching.core import SearchCore
from edt_server.searching.events import Answered, Reported, SearchStarted, TrialEnded, TrialFailed

SPACE = {"lr": log(1e-4, 1e-1), "width": choice(32, 64, 128)}
JOB = JobSpec(name="digits", main="train.py", max_workers=4)


def search(**changes) -> SearchSpec:
    fields = {"job": JOB, "space": SPACE, "metric": "loss", "trials": 27, "fail_fast": False}
    return SearchSpec(**(fields | changes)).check()


def fraction(*facts) -> float:
    """A number from 0 to 1 that looks random and is not."""
    return int.from_bytes(hashlib.sha256(repr(facts).encode()).digest()[:8], "big") / 2**64


def loss(values, budget: int) -> float | None:
    """What a trial reports: less with more epochs, now and then NaN, and equal for some trials."""
    found = fraction(sorted(values.items()))
    if found < 0.03:
        return float("nan")
    return round(found, 2) + 1 / (1 + budget) + 0.1 * fraction(found, budget)


class Play:
    """One search, from its start to its end. Whatever may happen next is drawn by `rng`.

    Attributes:
        log: all entries of the log.
        events: what the core was told, in order.
        trained: (trial, epoch) → how often that epoch was computed.
        asks: all questions, in order.
        opened: (trial, rung) in the order in which the segments could begin.
    """

    def __init__(self, spec: SearchSpec, rng: random.Random, *, slots: int = 4, fails: float = 0.0) -> None:
        self.core = SearchCore(spec)
        self.rng, self.slots, self.fails = rng, slots, fails
        self.log, self.events, self.asks, self.opened = [], [], [], []
        self.trained = Counter()
        self.at: dict[int, int] = {}  # epochs that a trial has trained
        self.speed: dict[int, float] = {}

    def tell(self, event):
        step = self.core.apply(event)
        self.events.append(event)
        if isinstance(event, Reported):
            self.at[event.number] = event.budget
            self.trained[event.number, event.budget] += 1
        self.log += step.decisions
        self.asks += [each for each in self.core.asks() if each not in self.asks]
        for number in reversed(dict.fromkeys(reversed(step.changed))):  # by the last change of each
            trial = self.core.trials[number]
            self.at.setdefault(number, trial.branched)
            if trial.open and (number, trial.rung) not in self.opened:
                self.opened.append((number, trial.rung))
        return step

    def run(self, most: int = 10**6):
        """Play to the end of the search."""
        if not self.events:
            self.tell(SearchStarted())
        for _ in range(most):
            if self.core.state.final:
                return self
            self.once()
        raise AssertionError(f"the search does not end: {self.core.state} {self.core.rungs()}")

    def once(self):
        asks, running = self.core.asks(), self.core.runnable(self.slots)
        assert asks or running, "nothing is open and the search has not ended"
        if asks and (not running or self.rng.random() < 0.5):
            self.answer(self.rng.choice(asks))
        else:
            # Some trials are slow, in each play others.
            weights = [self.speed.setdefault(trial.number, self.rng.choice((1, 1, 5, 50))) for trial in running]
            self.train(self.rng.choices(running, weights)[0])

    def answer(self, ask: AskValues):
        """Suggestions that depend on everything they may see, so that they differ where one sees something else."""
        seen = [] if self.core.spec.sampler == "random" else self.core.past(ask.upto)
        values = tuple(
            {name: each.between(fraction(name, number, seen)) for name, each in SPACE.items()} for number in ask.numbers
        )
        self.tell(Answered(ask.numbers[0], values))

    def train(self, trial):
        number = trial.number
        if fraction("fails", sorted(trial.values.items()), self.at[number]) < self.fails:
            self.tell(TrialFailed(number, "RuntimeError: out of luck"))
            return
        if trial.budget == 0 and self.at[number] >= 3:
            self.tell(TrialEnded(number))
        else:
            budget = self.at[number] + 1
            self.tell(Reported(number, budget, {"loss": loss(trial.values, budget)}))

    def table(self):
        """What must be equal for equal searches."""
        return {
            number: (trial.values, trial.state, {at: repr(value) for at, value in trial.reports.items()}, trial.parent)
            for number, trial in sorted(self.core.trials.items())
        }

    def decisions(self):
        """The log without the order in which it was written."""
        return sorted(
            (each.kind, -1 if each.trial is None else each.trial, each.rung or 0, each.inputs, each.text, each.outside)
            for each in self.log
        )

    def states(self):
        return Counter(trial.state for trial in self.core.trials.values())


def check_ended(play: Play) -> None:
    """What every search that has ended has kept to."""
    asked = [number for each in play.asks for number in each.numbers]
    assert len(asked) == len(set(asked)), "nothing is asked twice"
    assert not {TrialState.WAITING, TrialState.RUNNING, TrialState.HELD} & play.states().keys()
    assert (play.core.runnable(10), play.core.asks()) == ([], ())
    assert [each.index for each in play.log] == sorted({each.index for each in play.log}), "indices grow"
    assert max(play.trained.values(), default=1) == 1, "no epoch is computed twice"
