"""Say which algorithms there are and which options each takes, under our names and under WMLA's. Pure, without Optuna.

A value may be a text, as WMLA's clients send it. WMLA's names, with a capital letter, keep its documented bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.search.space import Choice, Space, Value

_ONE, _TWO, _THREE = (Annotated[int, Meta(ge=least)] for least in (1, 2, 3))
_ABOVE_0, _PART, _GOOD = (
    Annotated[float, Meta(gt=0)],
    Annotated[float, Meta(ge=0, le=1)],
    Annotated[float, Meta(gt=0, le=1)],
)
_SEED = {name: ("seed", Annotated[int, Meta(ge=0, lt=1 << 32)]) for name in ("seed", "RandomSeed")}
# By algorithm and name of an option: its name in an `Ask`, which is Optuna's for its sampler, and its type.
_OPTIONS: Mapping[str, Mapping[str, tuple[str, Any]]] = {
    "random": _SEED,
    "qmc": _SEED,
    "tpe": {
        **_SEED,
        "startup": ("n_startup_trials", _ONE),
        "WarmUp": ("n_startup_trials", _THREE),
        "candidates": ("n_ei_candidates", _ONE),
        "EICandidate": ("n_ei_candidates", _TWO),
        "good_ratio": ("good_ratio", _GOOD),
        "GoodRatio": ("good_ratio", _GOOD),
        "good_most": ("good_most", _ONE),
        "GoodMax": ("good_most", _TWO),
    },
    "gp": {
        **_SEED,
        "startup": ("n_startup_trials", _ONE),
        "InitPoints": ("n_startup_trials", _ONE),
        "noiseless": ("deterministic_objective", bool),
        "Noiseless": ("deterministic_objective", bool),
        "CubeSize": ("cube", int),
    },
    "cmaes": {
        **_SEED,
        "startup": ("n_startup_trials", _ONE),
        "sigma": ("sigma0", _ABOVE_0),
        "population": ("popsize", _TWO),
    },
    "nsga2": {
        **_SEED,
        "population": ("population_size", _TWO),
        "crossover": ("crossover_prob", _PART),
        "mutation": ("mutation_prob", _PART),
    },
}
ALGORITHMS = tuple(_OPTIONS)
_PACKAGES = {"gp": "scipy", "qmc": "scipy", "cmaes": "cmaes"}


def check_algorithm(
    algorithm: str, options: Mapping[str, object], space: Space, *, trials: int | None = None
) -> dict[str, Value]:
    """Return the options as an `Ask` takes them.

    Args:
        algorithm: one of `ALGORITHMS`. Plug-ins are not checked here.
        options: by our names or WMLA's.
        space: the parameters, checked already.
        trials: how many there will be at most, None for any number.

    Raises:
        Unprocessable: there is no such algorithm, it cannot search this space, or an option is wrong.
    """
    if algorithm not in _OPTIONS:
        raise _refusal(f"There is no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}.")
    if (package := _PACKAGES.get(algorithm)) and find_spec(package) is None:
        raise _refusal(
            f"The algorithm {algorithm} needs {package}, which this server does not have.",
            hint="Install it with the server: pip install 'jupyter-edt[search]', or choose tpe.",
        )
    if algorithm == "cmaes" and sum(not isinstance(each, Choice) for each in space.values()) < 2:
        raise _refusal("cmaes needs two parameters that are ranges of numbers.", hint="Choose tpe.")
    return _parsed(algorithm, options, trials)


def _parsed(algorithm: str, options: Mapping[str, object], trials: int | None) -> dict[str, Value]:
    known = _OPTIONS[algorithm]
    found: dict[str, Value] = {}
    for name, value in options.items():
        if name not in known:
            raise _refusal(f"The algorithm {algorithm} has no option {name!r}; it has {', '.join(known)}.", name)
        target, kind = known[name]
        if target in found:
            raise _refusal(f"The option {name} is given twice, under both of its names.", name)
        try:
            found[target] = msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as why:
            raise _refusal(f"The option {name} cannot be {value!r}. {why}.", name) from None
    # WMLA's size of a sample of the space. Optuna optimizes over the whole space, so it has no other meaning here.
    cube = int(found.pop("cube", -1))
    if trials is not None and -1 < cube < trials:
        raise _refusal(f"CubeSize is at least the number of trials, {trials:,}, not {cube}.", "CubeSize")
    return found


def _refusal(message: str, option: str = "", *, hint: str = "") -> Unprocessable:
    return Unprocessable(message, hint=hint, field=f"options.{option}" if option else "algorithm")
