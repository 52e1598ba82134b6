"""Check the arguments of a `FabricModel` in the user's words, at the line of the mistake.

Each check raises InvalidRequest (never valid) or Unprocessable (a valid type with an invalid value). The error has the
argument as its field and, where a fix is known, the fix as its hint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable

_OTHER_LIBRARIES = frozenset({"tensorflow", "keras", "tf_keras"})
_SPEC = 'For example {"nodes": {"num_nodes": 2, "gpu": {"num_gpu": 1}}}.'


def check_model(model: Any) -> None:
    """Check for a module with something to train."""
    # By the name of the module, so that the other libraries need not be installed or imported.
    if type(model).__module__.partition(".")[0] in _OTHER_LIBRARIES:
        raise InvalidRequest(
            f"model is a {type(model).__module__}.{type(model).__name__}: only PyTorch models can be trained here.",
            hint="Give a torch.nn.Module.",
            field="model",
        )
    if not isinstance(model, nn.Module):
        raise InvalidRequest(
            f"model must be a torch.nn.Module, not a {type(model).__name__}.",
            hint="Give an instance of the model, not its class." if isinstance(model, type) else "",
            field="model",
        )
    parameters = list(model.parameters())
    if not parameters:
        raise InvalidRequest(
            "model has no parameters: there is nothing to train.",
            hint="Layers count when they are attributes of the module, or in a ModuleList. A plain list hides them.",
            field="model",
        )
    if not any(parameter.requires_grad for parameter in parameters):
        raise InvalidRequest(
            "All parameters of the model are frozen: there is nothing to train.",
            hint="Set requires_grad = True on those that are to be trained.",
            field="model",
        )


def check_optimizer(optimizer: Any, model: nn.Module) -> None:
    """Check for an optimizer over the model's own parameters."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidRequest(
            f"optimizer must be an instance of torch.optim.Optimizer, not a {type(optimizer).__name__}.",
            hint="Keep your own loop with several: edt_sdk.elastic. Or put them into one optimizer class of your own, "
            "whose step() calls theirs."
            if isinstance(optimizer, list | tuple | dict)
            else "For example torch.optim.SGD(model.parameters(), lr=0.1).",
            field="optimizer",
        )
    # By identity, because tensors compare element by element.
    own = {id(parameter) for parameter in model.parameters()}
    if any(id(p) not in own for group in optimizer.param_groups for p in group["params"]):
        raise InvalidRequest(
            "optimizer holds parameters that are not the model's.",
            hint="Build it over model.parameters() of this very model, after the model has its final layers.",
            field="optimizer",
        )


def check_lr_scheduler(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    """Check for None, or a scheduler over this optimizer."""
    if scheduler is None:
        return
    if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
        raise InvalidRequest(
            f"lr_scheduler must be one of torch.optim.lr_scheduler, not a {type(scheduler).__name__}.",
            hint="For example torch.optim.lr_scheduler.StepLR(optimizer, 10). A Callback can change rates too.",
            field="lr_scheduler",
        )
    if scheduler.optimizer is not optimizer:
        raise InvalidRequest(
            "lr_scheduler is built over another optimizer than the one given.",
            hint="Build it over this very optimizer, as the last thing before the FabricModel.",
            field="lr_scheduler",
        )


def check_callable(name: str, value: Any, hint: str) -> None:
    """Check for a function or another callable."""
    if not callable(value):
        raise InvalidRequest(f"{name} must be callable, not a {type(value).__name__}.", hint=hint, field=name)


def whole(name: str, value: Any, least: int) -> int:
    """Return `value` as an int, at least `least`."""
    # Accept numpy's integers too. A bool is surely a mistake.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidRequest(f"{name} must be a whole number, not {value!r}.", field=name)
    number = int(value)
    if number < least:
        raise Unprocessable(f"{name} must be at least {least}, not {number}.", field=name)
    return number


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of the allowed words."""
    if value not in allowed:
        words = " or ".join(map(repr, allowed))
        raise Unprocessable(f"{name} is {words}, not {value!r}.", field=name)
    return str(value)


def most_workers(
    *,
    engines_number: int | None,
    hardware_spec: Mapping[str, Any] | str | None,
    worker_num: int | None,
    worker_device_num: int | None,
) -> int | None:
    """Return how many workers a `train()` call may have at most by WMLA's keywords, None when no argument sets it.

    The newest keywords win: a `hardware_spec` counts nodes and GPUs, else `engines_number`, else `worker_num` workers
    with `worker_device_num` devices each. A worker has one slot here, so only the product matters. The other fields of
    a `hardware_spec` (processor units, memory, GPU profiles, a template name) mean nothing where all slots are alike.
    """
    counted = _counted(hardware_spec)
    if counted is not None:
        return counted
    if engines_number is not None:
        return whole("engines_number", engines_number, 1)
    if worker_num is None and worker_device_num is None:
        return None
    return whole("worker_num", _one(worker_num), 1) * whole("worker_device_num", _one(worker_device_num), 1)


def _counted(spec: Mapping[str, Any] | str | None) -> int | None:
    # A name or an id refers to a template of the platform, which this server does not have.
    if spec is None or isinstance(spec, str):
        return None
    nodes = _mapping(_mapping(spec).get("nodes"))
    devices = _mapping(nodes.get("gpu"))
    if nodes.get("num_nodes") is None and devices.get("num_gpu") is None:
        return None
    return whole("hardware_spec", _one(nodes.get("num_nodes")), 1) * whole(
        "hardware_spec", _one(devices.get("num_gpu")), 1
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidRequest(
            f"hardware_spec must be a dictionary of dictionaries, not {value!r}.", hint=_SPEC, field="hardware_spec"
        )
    return value


def _one(value: Any) -> Any:
    return 1 if value is None else value
