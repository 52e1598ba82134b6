"""Count what a search would train by playing it: the core decides over invented values, as it will over reported ones.

So a preview has no second arithmetic of halving, Hyperband or the virtual clock. Where a decision depends on what
trials report, as in the order `clock`, the counts are those of values without any order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

from edt_sdk.schemas.search.spec import SearchSpec
from edt_sdk.schemas.search.views import RungView
from edt_server.searching.core import SearchCore
from edt_server.searching.events import Answered, Reported, SearchStarted, TrialEnded


def play(spec: SearchSpec) -> tuple[RungView, ...]:
    """Return how far the trials of a checked search would train, with as many at once as its lanes."""
    rng = random.Random(spec.seed)
    core = SearchCore(msgspec.structs.replace(spec, fail_fast=False))
    core.apply(SearchStarted())
    while not core.state.final:
        for ask in core.asks():
            values = tuple({name: each.between(rng.random()) for name, each in spec.space.items()} for _ in ask.numbers)
            core.apply(Answered(ask.numbers[0], values))
        for trial in core.runnable(spec.lanes):
            core.apply(Reported(trial.number, trial.budget or 1, {spec.metric: rng.random()}))
            if not trial.budget:
                core.apply(TrialEnded(trial.number))
    return core.rungs()


def epochs(spec: SearchSpec, rungs: Iterable[RungView]) -> int:
    """Return the epochs that all trials train together, 0 where their script decides."""
    before: dict[int, int] = {}
    found = 0
    for rung in rungs:  # of a bracket the shortest first
        found += rung.trials * (rung.budget - before.get(rung.bracket, 0))
        # Where a job cannot be held, each comparison is followed by new runs.
        before[rung.bracket] = 0 if spec.resource else rung.budget
    return found


def summary(spec: SearchSpec, rungs: Iterable[RungView]) -> str:
    """Say in a sentence how much would be trained."""
    many, whole = epochs(spec, rungs), spec.trials * spec.epochs
    trials = "1 trial" if spec.trials == 1 else f"{spec.trials:,} trials"
    if not many:
        return f"{trials}; the script says how long each trains."
    about = "about " if spec.order != "rungs" and spec.kind.rungs else ""
    return f"{trials}, {about}{many:,} epochs{f' instead of {whole:,}' if many < whole else ''}."
