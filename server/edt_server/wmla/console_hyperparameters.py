"""Translate the console's hyper-parameters to those that `pth_parameter_mgr` reads, and back. Pure.

The console has one flat list of names for all libraries. Here an optimizer and a learning-rate scheduler are classes of
torch with arguments of their own. Names without a counterpart become remarks and are never refused, because IBM's
clients send the whole list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edt_sdk.schemas.errors import InvalidRequest

_OPTIMIZER = {
    "momentum": "momentum",
    "weightdecay": "weight_decay",
    "dampening": "dampening",
    "nesterov": "nesterov",
    "rho": "rho",
    "eps": "eps",
    "epsilon": "eps",
    "lr_decay": "lr_decay",
    "amsgrad": "amsgrad",
    "lambd": "lambd",
    "alpha": "alpha",
    "t0": "t0",
    "centered": "centered",
}
_SCHEDULER = {
    "stepsize": "step_size",
    "gamma": "gamma",
    "t_max": "T_max",
    "eta_min": "eta_min",
    "mode": "mode",
    "factor": "factor",
    "patience": "patience",
    "threshold": "threshold",
    "threshold_mode": "threshold_mode",
    "cooldown": "cooldown",
    "power": "power",
}
_POLICIES = {
    "step": "StepLR",
    "multistep": "MultiStepLR",
    "exp": "ExponentialLR",
    "exponential": "ExponentialLR",
    "cosine": "CosineAnnealingLR",
    "plateau": "ReduceLROnPlateau",
    "poly": "PolynomialLR",
}
# What a search may vary, beside the arguments of a script of its own.
_TUNED = {
    "learningrate": "optimizer.lr",
    "epoch": "epochs",
    "batchsize": "train_batch_size",
    **{theirs: f"optimizer.{ours}" for theirs, ours in _OPTIMIZER.items()},
    **{theirs: f"learning_rate.{ours}" for theirs, ours in _SCHEDULER.items()},
}
_FIXED = ("", "fixed", "none", "constant")


def from_console(given: Mapping[str, Any], batch_size: Any = None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return our hyper-parameters, and remarks about names without a counterpart."""
    said = {key.lower(): value for key, value in given.items() if value is not None}
    found: dict[str, Any] = {}
    if "epoch" in said:
        found["epochs"] = _whole("epoch", said.pop("epoch"))
    if batch_size is not None:
        found["train_batch_size"] = _whole("batchsize", batch_size)
    optimizer = {ours: said.pop(theirs) for theirs, ours in _OPTIMIZER.items() if theirs in said}
    if "learningrate" in said:
        optimizer["lr"] = said.pop("learningrate")
    if "beta1" in said or "beta2" in said:
        # torch takes both or none, so the one that is missing gets torch's own default.
        optimizer["betas"] = [said.pop("beta1", 0.9), said.pop("beta2", 0.999)]
    kind = str(said.pop("solvertype", "") or "")
    if kind or optimizer:
        found["optimizer"] = {"name": kind or "SGD", **optimizer}
    policy = str(said.pop("lrpolicy", "") or "")
    arguments = {ours: said.pop(theirs) for theirs, ours in _SCHEDULER.items() if theirs in said}
    if "stepvalues" in said:
        arguments["milestones"] = _numbers(said.pop("stepvalues"))
    if policy.lower() not in _FIXED:
        found["learning_rate"] = {"name": _POLICIES.get(policy.lower(), policy), **arguments}
    # Arguments without a scheduler would be dropped silently. They become part of the remark instead.
    elif arguments:
        said |= dict.fromkeys(arguments)
    if not said:
        return found, ()
    return found, (f"The hyper-parameters {', '.join(sorted(said))} have no meaning here.",)


def to_console(ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the console's names of our hyper-parameters."""
    found: dict[str, Any] = {}
    if "epochs" in ours:
        found["epoch"] = ours["epochs"]
    optimizer = dict(ours.get("optimizer") or {})
    if optimizer:
        found["solvertype"] = optimizer.pop("name")
        if "lr" in optimizer:
            found["learningrate"] = optimizer.pop("lr")
        if "betas" in optimizer:
            found["beta1"], found["beta2"] = optimizer.pop("betas")
        # Two of the console's names mean eps. In reversed order the table's first name is the one that stays.
        names = {value: key for key, value in reversed(_OPTIMIZER.items())}
        found |= {names[key]: value for key, value in optimizer.items() if key in names}
    schedule = dict(ours.get("learning_rate") or {})
    if schedule:
        found["lrpolicy"] = schedule.pop("name")
        if "milestones" in schedule:
            found["stepvalues"] = ",".join(map(str, schedule.pop("milestones")))
        names = {value: key for key, value in _SCHEDULER.items()}
        found |= {names[key]: value for key, value in schedule.items() if key in names}
    return found


def tuned(name: str) -> str:
    """Return where `pth_parameter_mgr` has a hyper-parameter that a search varies. An unknown one is the script's."""
    return _TUNED.get(name.lower(), name)


def as_tuned(name: str) -> str:
    """Return the console's name for what `tuned` returned."""
    return next((theirs for theirs, ours in _TUNED.items() if ours == name), name)


def _whole(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1 or isinstance(value, bool):
        raise InvalidRequest(f"{name} is a whole number above 0, not {value!r}.", field=name)
    return number


def _numbers(text: Any) -> list[int]:
    words = text if isinstance(text, list) else str(text).replace(";", ",").split(",")
    return [_whole("stepvalues", str(word).strip()) for word in words]
