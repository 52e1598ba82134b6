"""Translate WMLA's searches for hyper-parameters to ours, and show ours as its clients read them. Pure.

Nothing of a request is kept beside the search, so a search of a native client has every field too.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edt_sdk.schemas.catalogue import ModelTraining
from edt_sdk.schemas.errors import InvalidRequest
from edt_sdk.schemas.frameworks import Framework
from edt_sdk.schemas.job import JobSpec
from edt_sdk.schemas.registered import WmlaRequest
from edt_sdk.schemas.search.space import MOST_CHOICES, Choice, Integer, Parameter, Uniform, Value
from edt_sdk.schemas.search.spec import ALGORITHMS, MOST_GP_TRIALS, MOST_LANES, MOST_TRIALS, SearchSpec
from edt_sdk.schemas.search.views import SearchState, SearchView, TrialReport, TrialState, TrialView
from edt_server.wmla import ids
from edt_server.wmla.console import engine, required, synchronous, text
from edt_server.wmla.console_hyperparameters import as_tuned, from_console, tuned

# By our names, in the order of WMLA's list.
_GRID = "ExperimentGridSearch"
BUILT_IN = {"random": "Random", "tpe": "TPE", "gp": "Bayesian", "hyperband": "Hyperband", "list": _GRID}
# The parameters of each that mean something here, with WMLA's defaults. Clients send others too, as they did to WMLA.
_PARAMETERS: Mapping[str, Mapping[str, Value | None]] = {
    "tpe": {"WarmUp": "20", "EICandidate": "24", "GoodRatio": "0.25", "GoodMax": "25"},
    "gp": {"InitPoints": "10", "Noiseless": "true", "CubeSize": None},
}
_NO_VALUE = 9999.99  # of an experiment that failed, as recorded
_SAFE = 2**53  # whole numbers that every client reads exactly
_IDS = "ids"  # the option of a list that holds the ids of its experiments
_STATES = {
    SearchState.CREATED: "SUBMITTED",
    # Notebooks poll while a task is SUBMITTED or RUNNING, and it may still go on.
    SearchState.PAUSED: "SUBMITTED",
}
_EXPERIMENTS = {
    TrialState.WAITING: "SUBMITTED",
    TrialState.HELD: "RUNNING",
    TrialState.PRUNED: "FINISHED",
}
_OVER = (TrialState.FINISHED, TrialState.PRUNED, TrialState.FAILED)
_Object = Mapping[str, Any]
_Objects = list[dict[str, Any]] | None
_Number = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # refuses NaN too
_Whole = Annotated[int, Meta(ge=-_SAFE, le=_SAFE)]
_WORDS: Mapping[Any, str] = {
    str: "a text",
    _Number: "a number",
    _Whole: "a whole number",
    _Objects: "a list of objects",
    Value: "a text or a number",
}
_KINDS: Mapping[str, Any] = {"int": _Whole, "double": _Number, "str": str, "string": str}


# --- a request --------------------------------------------------------------------------------------------------------


def part(form: _Object, name: str) -> _Object:
    """Return an object of the request. InvalidRequest where it is missing or no object."""
    found = form.get(name)
    if not isinstance(found, Mapping):
        raise InvalidRequest(f"The request has no object {name}.", hint=f"data is JSON with {name}.", field=name)
    return found


def search_spec(form: _Object, job: JobSpec, *, name: str, seed: int) -> SearchSpec:
    """Return the search that a request asks for, not checked.

    Args:
        form: the JSON of the request.
        job: the template of its trials.
        name: its name where the request has none.
        seed: its seed where the request has none.
    """
    definition = {key: value for key, value in part(form, "algoDef").items() if value is not None}
    params: dict[str, Value] = {
        required(each, "algoDef.algoParams.name"): _as(Value, "algoDef.algoParams.value", each.get("value"))
        for each in _objects(definition, "algoDef.algoParams")
    }
    given = {key.lower(): value for key, value in params.items()}
    algorithm = _algorithm(required(definition, "algoDef.algorithm"))
    minutes = _as(_Number, "algoDef.maxRunTime", definition.get("maxRunTime", -1))
    lanes = _count(definition, "maxParalleJobNum", _count(definition, "maxParalleJob", 1))
    most = MOST_GP_TRIALS if algorithm == "gp" else MOST_TRIALS
    trials = _count(definition, "maxJobNum", most)
    hpo_name = required(form, "hpoName") if form.get("hpoName") else name
    if hpo_name == "algorithm":
        raise InvalidRequest("A task cannot be called algorithm.", hint="It is a route.", field="hpoName")
    objective = definition.get("objective") or "minimize"
    settings: dict[str, Any] = {
        "job": msgspec.structs.replace(job, name=hpo_name),
        "metric": required(definition, "algoDef.objectiveMetric"),
        "direction": objective.lower() if isinstance(objective, str) else repr(objective),
        "algorithm": algorithm,
        "trials": trials,
        "parallel": 1 if algorithm == "gp" else lanes,
        "lanes": 1 if algorithm == "gp" else min(lanes, MOST_LANES),
        "seed": _as(_Whole, "RandomSeed", given["randomseed"]) if "randomseed" in given else seed,
        "value": "best",
        "fail_fast": False,
        "max_time": minutes * 60 if minutes > 0 else None,
    }
    additional = definition.get("additionalMetrics") or {}
    if not isinstance(additional, Mapping):
        raise InvalidRequest("additionalMetrics is an object.", field="algoDef.additionalMetrics")
    if algorithm == "list":
        return SearchSpec(**{**settings, **_experiments(form)})
    if form.get("experiments"):
        hint = "Give hyperParams, or the algorithm ExperimentGridSearch."
        raise InvalidRequest(
            f"{BUILT_IN.get(algorithm, algorithm)} has no experiments.", hint=hint, field="experiments"
        )
    space = dict(_parameter(each) for each in _objects(form, "hyperParams"))
    if algorithm == "hyperband":
        settings |= _resource(definition, given)
    elif algorithm in BUILT_IN:
        known = _PARAMETERS.get(algorithm, {})
        chosen = {key: given.get(key.lower(), default) for key, default in known.items()}
        # Without a number of experiments CubeSize has nothing to be compared with.
        settings["options"] = {
            key: value for key, value in chosen.items() if value is not None and (key != "CubeSize" or trials < most)
        }
    else:
        settings["options"] = params
    return SearchSpec(**settings, space=space)


def tuning(form: _Object, *, group: str) -> tuple[ModelTraining, str]:
    """Return how the trials of a search over a model of the console train, and their first weights ("" for its own)."""
    given = part(form, "resDef")
    training, remarks = from_console({"epoch": given.get("maxiteration") or None}, given.get("batchsize") or None)
    assert not remarks
    return ModelTraining(
        framework=engine(text(given, "framework")) if text(given, "framework") else None,
        max_workers=_as(_Whole, "resDef.workerNum", given.get("workerNum") or 1),
        hyperparameters=training,
        instance_group=group,
    ), text(given, "initWeightPath")


def tuning_spec(form: _Object, job: JobSpec, *, name: str, seed: int) -> SearchSpec:
    """Return the search over a model of the console, not checked. Its names are those of `pth_parameter_mgr`."""
    given, definition = part(form, "resDef"), dict(part(form, "algoDef"))
    if _algorithm(required(definition, "algoDef.algorithm")) == "hyperband":
        resource = {"ResourceName": "epochs", "ResourceValue": given.get("maxiteration")}
        params = _objects(definition, "algoDef.algoParams") + [{"name": k, "value": v} for k, v in resource.items()]
        definition["algoParams"] = params
    # These clients have no word for the metric, and the console's own scripts report a loss and an accuracy.
    metric = "accuracy" if str(definition.get("objective")).lower() == "maximize" else "loss"
    definition.setdefault("objectiveMetric", f"test_{metric}" if job.framework == Framework.EDT else metric)
    if remarks := synchronous(given):
        job = msgspec.structs.replace(job, wmla=WmlaRequest(remarks=tuple(remarks)))
    spec = search_spec({**form, "algoDef": definition}, job, name=name, seed=seed)
    if spec.resource:
        least = _as(_Whole, "resDef.miniteration", given.get("miniteration") or 1)
        spec = msgspec.structs.replace(spec, min_epochs=least)
    return _renamed(spec, tuned)


def as_tuning(view: SearchView, trials: Sequence[TrialView]) -> tuple[SearchView, list[TrialView]]:
    """Return a search over a model with the console's names."""
    shown = [
        msgspec.structs.replace(each, params={as_tuned(name): value for name, value in each.params.items()})
        for each in trials
    ]
    return msgspec.structs.replace(view, spec=_renamed(view.spec, as_tuned)), shown


def _renamed(spec: SearchSpec, rename: Callable[[str], str]) -> SearchSpec:
    names = {name: rename(name) for name in (*spec.space, *(name for point in spec.points for name in point))}
    if len(set(names.values())) < len(names):
        raise InvalidRequest("Two of the hyperParams mean the same.", field="hyperParams")
    return msgspec.structs.replace(
        spec,
        space={names[name]: each for name, each in spec.space.items()},
        points=tuple({names[name]: value for name, value in point.items()} for point in spec.points),
    )


def _algorithm(word: str) -> str:
    """Return our name of an algorithm. Any other word is that of a plug-in, and ours are none here."""
    found = next((ours for ours, theirs in BUILT_IN.items() if theirs.lower() == word.lower()), word)
    if found == word and word.lower() in ALGORITHMS:
        hint = f"There is {', '.join(BUILT_IN.values())}, and what is installed."
        raise InvalidRequest(f"There is no algorithm {word}.", hint=hint, field="algoDef.algorithm")
    return found


def _resource(definition: _Object, given: Mapping[str, Value]) -> dict[str, Any]:
    for name in ("ResourceName", "ResourceValue"):
        if name.lower() not in given:
            raise InvalidRequest(f"Hyperband needs the algoParam {name}.", field=f"algoDef.algoParams.{name}")
    return {
        "resource": str(given["resourcename"]),
        "epochs": _as(_Whole, "ResourceValue", given["resourcevalue"]),
        "eta": _as(_Number, "eta", given.get("eta", definition.get("hyperbandEta") or 3)),
    }


def _experiments(form: _Object) -> dict[str, Any]:
    if form.get("hyperParams"):
        raise InvalidRequest("A request has hyperParams or experiments, not both.", field="hyperParams")
    found = _objects(form, "experiments")
    if not found:
        raise InvalidRequest(f"{_GRID} needs experiments.", field="experiments")
    points = []
    for each in found:
        point = {}
        # IBM's SDK has a name of its own for them.
        key = "fixedHyperParams" if "fixedHyperParams" in each else "hyperParams"
        for item in _objects(each, f"experiments.{key}"):
            name = required(item, "experiments.hyperParams.name")
            point[name] = _as(_kind(item, name), f"experiments.hyperParams.{name}", item.get("fixedVal"))
        points.append(point)
    numbers = [_as(_Whole, "experiments.id", each.get("id", place)) for place, each in enumerate(found)]
    return {"points": tuple(points), "trials": len(points), "options": {_IDS: " ".join(map(str, numbers))}}


def _parameter(item: _Object) -> tuple[str, Parameter]:
    name = required(item, "hyperParams.name")
    field, kind = f"hyperParams.{name}", _kind(item, name)
    ranged = required(item, f"{field}.type").lower()
    if ranged == "discrete":
        keys = {_Number: ("discreteDbVal",), _Whole: ("discreteIntVal",), str: ("discreateStrVal", "discreteStrVal")}
        found = next((item[key] for key in keys[kind] if item.get(key)), None)
        if not isinstance(found, list):
            raise InvalidRequest(f"{name} is discrete and has no list {keys[kind][0]}.", field=field)
        return name, Choice(values=tuple(_as(kind, field, value) for value in found))
    if ranged != "range" or kind is str:
        text = f"{name} has the type {ranged} of {item['dataType']}."
        raise InvalidRequest(text, hint="There is Range of INT or DOUBLE, and Discrete.", field=f"{field}.type")
    ends = ("minIntVal", "maxIntVal") if kind is _Whole else ("minDbVal", "maxDbVal")
    low, high = (_as(kind, f"{field}.{end}", item.get(end)) for end in ends)
    # Keys without a meaning are there with 0 or an empty text.
    step, base = (_as(_Number, f"{field}.{key}", item.get(key) or 0) or None for key in ("step", "power"))
    if kind is _Number:
        return name, Uniform(low=low, high=high, step=step, base=base)
    range_ = Integer(low=low, high=high, step=_as(_Whole, f"{field}.step", step or 1))
    if base is None:
        return name, range_
    # The powers of a whole number are far apart, so they are choices.
    range_.check(name)
    if range_.low < 0 or range_.count > MOST_CHOICES or base < 1 or range_.high * math.log2(base) > math.log2(_SAFE):
        text = f"The powers of {name} are not at most {MOST_CHOICES:,} whole numbers up to {_SAFE:,}."
        raise InvalidRequest(text, hint="Use DOUBLE.", field=f"{field}.power")
    return name, Choice(values=tuple(_as(_Whole, field, base ** range_.at(index)) for index in range(range_.count)))


def _kind(item: _Object, name: str) -> Any:
    kind = required(item, f"hyperParams.{name}.dataType").lower()
    if kind not in _KINDS:
        text = f"The dataType of {name} is INT, DOUBLE or STR, not {kind!r:.60}."
        raise InvalidRequest(text, field=f"hyperParams.{name}.dataType")
    return _KINDS[kind]


def _count(definition: _Object, name: str, default: int) -> int:
    """Return a number of experiments. -1, or none, is the default."""
    found: int = _as(_Whole, f"algoDef.{name}", definition.get(name, -1))
    if found == 0 or found < -1:
        raise InvalidRequest(f"algoDef.{name} is -1 or above 0, not {found}.", field=f"algoDef.{name}")
    return default if found == -1 else found


def _objects(item: _Object, field: str) -> list[dict[str, Any]]:
    return _as(_Objects, field, item.get(field.rpartition(".")[2])) or []


def _as(kind: Any, field: str, value: Any) -> Any:
    """Return a value of the request as one of `_WORDS`. A number may be a text, such as .5."""
    number = kind in (_Number, _Whole)
    try:
        return msgspec.convert(float(value) if number and isinstance(value, str) else value, kind, strict=not number)
    except (ValueError, msgspec.ValidationError):
        raise InvalidRequest(f"{field} is {_WORDS[kind]}, not {value!r:.60}.", field=field) from None


# --- an answer --------------------------------------------------------------------------------------------------------


def task_object(
    view: SearchView,
    trials: Sequence[TrialView],
    reports: Sequence[TrialReport],
    submitted: Mapping[str, float],
    now: float,
) -> dict[str, Any]:
    """Return a search as its state object, with its trials, what they reported, and when each job was submitted."""
    seen: dict[int, dict[str, list[float]]] = {}
    for report in reports:
        for name, value in report.metrics.items():
            if value is not None:
                seen.setdefault(report.trial, {}).setdefault(name, []).append(value)
    # Clients read the exec of every experiment in the list.
    shown = {each.number: _experiment(view, each, seen.get(each.number, {}), submitted) for each in trials if each.job}
    complete = sum(view.counts.get(state, 0) for state in _OVER)
    unlimited = view.spec.trials >= (MOST_GP_TRIALS if view.spec.algorithm == "gp" else MOST_TRIALS)
    seconds = max(0, int((now if view.ended is None else view.ended) - view.created))
    found = {
        "hpoName": view.spec.job.name,
        "state": _STATES.get(view.state, view.state.value),
        "running": 0 if view.state.final else sum(each["state"] == "RUNNING" for each in shown.values()),
        "complete": complete,
        "failed": view.counts.get(TrialState.FAILED, 0),
        "progress": f"{complete}/{len(shown) if unlimited else view.spec.trials}",
        "createtime": local_time(view.created),
        "creator": view.owner,
        "duration": f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}",
        "experiments": list(shown.values()),
        "algoDef": _definition(view.spec, unlimited),
        "hyperParams": [_described(name, each) for name, each in view.spec.space.items()],
        "message": view.message,
    }
    if view.best is not None and view.best.number in shown:
        found["best"] = shown[view.best.number]
    return found


def local_time(moment: float) -> str:
    """Return a time in seconds as these clients read it, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def built_in() -> list[dict[str, Any]]:
    """Return the algorithms that need no installation."""
    return [{"name": name, "type": "BUILD_IN", "remoteExec": False} for name in BUILT_IN.values()]


def installed(*, name: str, folder: str, owner: str, created: float, log_level: str) -> dict[str, Any]:
    """Return an algorithm that a user has installed."""
    return {
        "name": name,
        "path": folder,
        "condaHome": "",
        "condaEnv": "",
        "creator": owner,
        "createtime": local_time(created),
        "type": "USER_PLUGIN",
        "remoteExec": False,
        "logLevel": log_level,
    }


def _experiment(
    view: SearchView, trial: TrialView, seen: Mapping[str, Sequence[float]], submitted: Mapping[str, float]
) -> dict[str, Any]:
    spec = view.spec
    state = _EXPERIMENTS.get(trial.state, trial.state.value)
    if trial.state in (TrialState.STOPPED, TrialState.RUNNING) and view.state is SearchState.FINISHED:
        # As recorded: what still runs at maxRunTime counts with what it has.
        state = "FAILED" if trial.value is None else "FINISHED"
    ids_ = str(spec.options.get(_IDS, "")).split() if spec.algorithm == "list" else []
    found: dict[str, Any] = {
        "id": int(ids_[trial.number]) if trial.number < len(ids_) else trial.number,
        "state": state,
        "appId": trial.job,
        "driverId": ids.driver_id(trial.job),
        "maxiteration": 0,
        # A trial may wait long for its job, and its job may be deleted.
        "startTime": local_time(submitted.get(trial.job, trial.created)),
        "hyperParams": [_fixed(spec, name, value) for name, value in trial.params.items()],
        "metrics": [
            {"name": name, "min": min(values), "max": max(values), "latest": values[-1]}
            for name, values in seen.items()
        ],
    }
    if trial.value is not None or state == "FAILED":
        worst = -_NO_VALUE if spec.direction == "maximize" else _NO_VALUE
        found["metricVal"] = worst if state == "FAILED" or trial.value is None else trial.value
    ended = view.ended if trial.ended is None and view.state.final else trial.ended
    if ended is not None:
        found["endTime"] = local_time(ended)
    return found


def _fixed(spec: SearchSpec, name: str, value: Value) -> dict[str, Any]:
    kind = "str" if name == spec.resource else _kind_of(spec.space.get(name, Choice(values=(value,))))
    found = {"name": name, "dataType": kind, "fixedVal": str(value), "userDefined": False}
    return {**found, "type": "fix"} if spec.algorithm == "list" else found


def _kind_of(parameter: Parameter) -> str:
    if not isinstance(parameter, Choice):
        return "int" if isinstance(parameter, Integer) else "double"
    kinds = {type(value) for value in parameter.values}
    return "int" if kinds == {int} else "double" if kinds <= {int, float} else "str"


def _described(name: str, parameter: Parameter) -> dict[str, Any]:
    kind = _kind_of(parameter)
    found: dict[str, Any] = {"minDbVal": 0.0, "maxDbVal": 0.0, "minIntVal": 0, "maxIntVal": 0}
    found |= {"discreteDbVal": [], "discreteIntVal": [], "discreateStrVal": []}
    if isinstance(parameter, Choice):
        key = {"double": "discreteDbVal", "int": "discreteIntVal", "str": "discreateStrVal"}[kind]
        found[key] = list(parameter.values) if kind != "str" else list(map(str, parameter.values))
    else:
        place = "Int" if kind == "int" else "Db"
        found |= {f"min{place}Val": parameter.low, f"max{place}Val": parameter.high}
        more = {"step": parameter.step, "power": getattr(parameter, "base", None)}
        found |= {key: str(value) for key, value in more.items() if value is not None}
    ranged = "discrete" if isinstance(parameter, Choice) else "range"
    return {"name": name, "type": ranged, "dataType": kind, **found, "userDefined": False}


def _definition(spec: SearchSpec, unlimited: bool) -> dict[str, Any]:
    options = {} if spec.algorithm == "list" else {"RandomSeed": spec.seed, **spec.options}
    if spec.resource:
        options |= {"eta": spec.eta, "ResourceName": spec.resource, "ResourceValue": spec.epochs}
    return {
        "algorithm": BUILT_IN.get(spec.algorithm, spec.algorithm),
        "maxRunTime": -1 if spec.max_time is None else math.ceil(spec.max_time / 60),
        "maxJobNum": -1 if unlimited else spec.trials,
        "maxParalleJobNum": spec.parallel,
        "objectiveMetric": spec.metric,
        "objective": spec.direction,
        "algoParams": [{"name": name, "value": str(value)} for name, value in options.items()],
    }
