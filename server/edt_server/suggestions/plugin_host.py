"""Run `python -m edt_server.suggestions.plugin_host <pid of the server> <name> <log level>` in a plug-in's folder.

It answers questions with the `PluginOptimizer` of the folder's `optimizer.py`, which is written for WMLA. Each question
makes an object of the class and gives it the state that came with the last answer. So a plug-in whose `get_state`
leaves something out answers the same after a crash as without one. A plug-in without `get_state` has all of its
attributes as its state. Only this process unpickles it.

The history of a question has the trials of the last answer. The server checks the values, and trusts nothing from here.
"""

from __future__ import annotations

import logging
import os
import pickle
import random
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from edt_sdk.schemas.search.space import Choice, Integer, Parameter, Uniform, Value
from edt_sdk.schemas.search.views import TrialState
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

LARGEST_STATE = 16 << 20
# WMLA's value of a trial that has none.
NO_VALUE = 9999.99


class BasePluginOptimizer:
    """What a plug-in's class is derived from: `plugins.core.base_plugin_opt.BasePluginOptimizer`."""

    def __init__(self, name: str, hyper_parameters: list[dict[str, Any]], **kwargs: Any) -> None:
        self.name = name

    def get_state(self) -> Any:
        """Return what the next object of the class needs."""
        return vars(self)

    def set_state(self, state_dict: Any) -> None:
        """Take what `get_state` has returned."""
        vars(self).update(state_dict)


class PluginHost:
    """The plug-in in the working directory, which is imported when it is first asked."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._class: Any = None

    def answer(self, ask: Ask) -> Answer:
        """Return the plug-in's answer. What it raises is a refusal."""
        try:
            if self._class is None:
                self._class = _imported()
            return self._suggested(ask)
        except (Exception, SystemExit):
            said = traceback.format_exc()
            sys.stderr.write(said)
            return NoSuggestion(f"The plug-in {self._name} failed. {said.strip().splitlines()[-1]}")

    def _suggested(self, ask: Ask) -> Answer:
        if not ask.numbers:  # whether it can be imported
            return Suggested(suggestions=())
        # A plug-in that draws from the global generators without a seed of its own is reproducible too.
        seed, wanted = seed_of(ask.seed, ask.numbers[0]), len(ask.numbers)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed)
        options = {name: str(value) for name, value in ask.options.items()}
        optimizer = self._class(self._name, [_described(name, each) for name, each in ask.space.items()], **options)
        if ask.state:
            optimizer.set_state(pickle.loads(ask.state))
        worst = -NO_VALUE if ask.direction == "maximize" else NO_VALUE
        returned = optimizer.search(wanted, [_result(told, worst) for told in ask.history] if ask.state else None)
        if not isinstance(returned, list):
            raise TypeError(f"search() returned a {type(returned).__name__} and no list.")
        found = [Suggestion(n, _values(each, ask.space)) for n, each in zip(ask.numbers, returned, strict=False)]
        state = pickle.dumps(optimizer.get_state())
        if len(state) > LARGEST_STATE:
            raise ValueError(f"Its state has {len(state):,} bytes, and {LARGEST_STATE:,} are allowed.")
        dropped = f"{self._name} returned {len(returned)} sets of values for {wanted} trials. The rest is dropped."
        return Suggested(suggestions=tuple(found), state=state, note=dropped if len(returned) > wanted else "")


def _imported() -> Any:
    """Return the plug-in's class. It finds the modules of WMLA that it imports."""
    modules: dict[str, dict[str, Any]] = {
        "plugins": {},
        "plugins.core": {},
        "plugins.core.logger": {"logger": logging.getLogger("plugin")},
        "plugins.core.base_plugin_opt": {"BasePluginOptimizer": BasePluginOptimizer},
    }
    for name, content in modules.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(content, __path__=[])
    # In front, as for a script. Everything of ours has been imported.
    sys.path.insert(0, os.getcwd())
    import optimizer  # type: ignore[import-not-found]

    return optimizer.PluginOptimizer


def _described(name: str, parameter: Parameter) -> dict[str, Any]:
    """Return a parameter as WMLA's clients describe it."""
    if isinstance(parameter, Choice):
        kinds = {type(value) for value in parameter.values}
        kind, key = ("DOUBLE", "discreteDbVal") if kinds <= {int, float} else ("STR", "discreateStrVal")
        kind, key = ("INT", "discreteIntVal") if kinds == {int} else (kind, key)
        return {"name": name, "type": "Discrete", "dataType": kind, key: list(parameter.values)}
    kind, part = ("INT", "Int") if isinstance(parameter, Integer) else ("DOUBLE", "Db")
    ends = {f"min{part}Val": parameter.low, f"max{part}Val": parameter.high}
    more = {"step": parameter.step, "power": getattr(parameter, "base", None)}
    given = {key: value for key, value in more.items() if value is not None}
    return {"name": name, "type": "Range", "dataType": kind, **ends, **given}


def _result(told: PastTrial, worst: float) -> dict[str, Any]:
    """Return how a trial of the last answer has ended. IBM does not document these, see decision 048."""
    failed, value = told.state is TrialState.FAILED, told.value
    state, value = "FAILED" if failed else "FINISHED", worst if failed or value is None else value
    return {**told.values, "id": told.number, "state": state, "metricVal": value, "hyperParams": told.values}


def _values(returned: Any, space: dict[str, Parameter]) -> dict[str, Value]:
    if not isinstance(returned, dict):
        raise TypeError(f"search() returned a list with a {type(returned).__name__} and no dictionary.")
    found: dict[str, Value] = {}
    for name, parameter in space.items():
        if name not in returned:
            raise ValueError(f"search() returned a set of values without {name!r}.")
        value = returned[name].item() if hasattr(returned[name], "item") else returned[name]  # numpy's numbers
        if not isinstance(value, bool | int | float | str):
            raise TypeError(f"search() returned a {type(value).__name__} for {name!r}.")
        # As with WMLA, a plug-in sees and returns exponents. The server refuses what is no number.
        if isinstance(parameter, Uniform) and parameter.base is not None and type(value) in (int, float):
            value = parameter.real(float(value))
        found[name] = value
    return found


def main(argv: Sequence[str]) -> None:
    """Answer the server's questions on stdin."""
    _, parent, name, level = argv
    logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s %(message)s")
    serve(int(parent), PluginHost(name).answer)


if __name__ == "__main__":
    main(sys.argv)
