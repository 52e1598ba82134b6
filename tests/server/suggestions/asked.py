"""A small search as the server drives it: lanes of trials, a log of what happened, and a function to search."""

from __future__ import annotations

import math
import os

import msgspec

from edt_sdk.schemas.search.space import Choice, Integer, Uniform, choice, integer, log, uniform
from edt_sdk.schemas.search.views import TrialState
from edt_server.searching import PastTrial
from edt_server.suggestions import Ask, Suggestions

SPACE = {
    "lr": log(1e-4, 1e-1),
    "width": choice(32, 64, True, "wide"),
    "depth": integer(1, 6),
    "dropout": uniform(0, 0.5, step=0.05),
    "decay": Uniform(-4, 0, base=10.0),
    "fixed": Integer(3, 3),
    "only": Choice(("one",)),
}
STEPPED = {"lr": choice(0.1, 0.01), "depth": integer(1, 5, step=2), "dropout": uniform(0.001, 0.1, step=0.033)}


def environ():
    """The variables of this process: the tests' folder is how leftovers are found."""
    return dict(os.environ)


def suggestions(**more):
    return Suggestions(environ(), **more)


def asking(algorithm, *numbers, search="s", seed=7, space=SPACE, options=None, direction="minimize", **more):
    return Ask(
        search=search,
        algorithm=algorithm,
        options=options or {},
        seed=seed,
        space=space,
        direction=direction,
        numbers=numbers,
        **more,
    )


async def answered(there, question, log, plugin=None):
    """The answer to a question that may see these entries of a history."""
    question = msgspec.structs.replace(question, upto=len(log))
    return await there.ask(question, lambda since: log[since:], plugin)


def loss(values):
    """Small near lr = 0.01, depth = 3 and without dropout."""
    return (math.log10(values["lr"]) + 2) ** 2 + (values["depth"] - 3) ** 2 / 4 + values["dropout"]


class Lanes:
    """Trials of which `lanes` run at a time, and end in the order of their numbers. Each tenth fails.

    Each fourth is held after its first report, and goes on one trial later.
    """

    def __init__(self, lanes=4):
        self.log: list[PastTrial] = []
        self._lanes = lanes
        self._last: dict[int, PastTrial] = {}

    def begin(self, suggestion):
        self._tell(
            PastTrial(suggestion.number, suggestion.values, TrialState.RUNNING, sampler_state=suggestion.sampler_state)
        )
        if (number := suggestion.number - self._lanes) >= 0:
            if number % 4 == 3:
                self._hold(number)
            else:
                self._end(number)
            if number % 4 == 0 and number:
                self._end(number - 1)

    def whole(self):
        """The last entry of each trial, with what the first one had."""
        states = {told.number: told.sampler_state for told in self.log if told.sampler_state}
        return [
            PastTrial(each.number, each.values, each.state, each.value, each.reports, states.get(each.number, b""))
            for each in self._last.values()
        ]

    def _tell(self, told):
        self.log.append(told)
        self._last[told.number] = told

    def _hold(self, number):
        values = self._last[number].values
        self._tell(PastTrial(number, values, TrialState.HELD, reports={1: loss(values) + 1}))

    def _end(self, number):
        values = self._last[number].values
        if number % 10 == 9:
            self._tell(PastTrial(number, values, TrialState.FAILED))
            return
        found = loss(values)
        self._tell(PastTrial(number, values, TrialState.FINISHED, found, {1: found + 1, 3: found}))
