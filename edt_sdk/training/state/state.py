"""Capture everything a joiner needs from a member, and restore it bit for bit.

The optimizer's state is taken raw, by the index of its parameter, because `load_state_dict` would cast it to the
parameter's type. Random states are left out, because they follow from seed and step (decision 032). `transfer.py`
moves a state from one member to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.state import nested
from edt_sdk.training.state.pickling import all_optimizers, attributes, dumps
from edt_sdk.training.state.several_optimizers import separate
from edt_sdk.training.state.tied_objects import freeze, thaw

Flags = tuple[list[bool], list[bool]]


@dataclass(frozen=True, slots=True)
class State:
    """Holds a member's state between two steps.

    Attributes:
        own: parameters and buffers by name, sharing the model's memory.
        rest: the optimizer's state and what the loop adds, frozen by `tied_objects.freeze`.
        tensors: the tensors that were taken out of `rest`.
    """

    own: dict[str, Tensor]
    rest: bytes
    tensors: list[Tensor]


def capture(model: nn.Module, optimizer: torch.optim.Optimizer, extra: object) -> State:
    """Return the current state. Its memory is shared with the model and not copied, so use it before the next step.

    `extra` is for the receiver: plain data, and the user's objects that cloudpickle can pickle.

    Raises:
        Unprocessable: the optimizer has got an attribute that cannot be pickled.
    """
    first, *others = separate(optimizer)
    rest = {**_captured(first), "flags": flags(model), "extra": extra}
    if others:
        rest["others"] = [_captured(each) for each in others]
    tensors: list[Tensor] = []
    try:
        frozen = freeze(rest, model, optimizer, tensors)
    except Exception as error:  # pickle and user __reduce__ methods may raise anything
        found = (_culprit(attributes(each)) for each in (first, *others))
        raise next((culprit for culprit in found if culprit is not None), error) from error
    return State(dict(own_tensors(model)), frozen, tensors)


def _captured(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    # By index, because a parameter is another object in another process.
    index = {id(parameter): i for i, parameter in enumerate(_parameters(optimizer))}
    return {
        "state": [(index.get(id(key), key), value) for key, value in optimizer.state.items()],
        "groups": group_scalars(optimizer),
        "attributes": attributes(optimizer),
    }


def restore(state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """Put a captured state into this process's model and optimizer, and return the `extra` of `capture`.

    The optimizer takes over its tensors without a copy, so the state must not be used afterwards.
    """
    # Before `thaw`, which looks up buffers by name: `put_tensors` may create some.
    put_tensors(model, state.own)
    rest = thaw(state.rest, model, optimizer, state.tensors)
    put_flags(model, rest["flags"])
    for each, captured in zip(separate(optimizer), [rest, *rest.get("others", ())], strict=True):
        _restored(each, captured)
    return rest["extra"]


def extra_of(state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """Return the `extra` of `capture`, and leave model and optimizer as they are."""
    return thaw(state.rest, model, optimizer, state.tensors)["extra"]


def _restored(optimizer: torch.optim.Optimizer, captured: dict[str, Any]) -> None:
    put_group_scalars(optimizer, captured["groups"])
    vars(optimizer).update(captured["attributes"])
    parameters = _parameters(optimizer)
    optimizer.state.clear()
    for key, value in captured["state"]:
        if isinstance(key, int):
            optimizer.state[parameters[key]] = value
        else:
            optimizer.state[key] = value
    for inner in all_optimizers(optimizer):
        for key, value in inner.state.items():
            if isinstance(key, Tensor):
                inner.state[key] = _beside(key, value)


def _culprit(kept: dict[str, Any]) -> Unprocessable | None:
    """Return an error that names the attribute of the optimizer that cannot be pickled, None if all can be."""
    for name, value in kept.items():
        try:
            dumps(value)
        except Exception as error:
            return Unprocessable(
                f"optimizer.{name} cannot be sent to other workers ({type(error).__name__}: {error}).",
                hint="Leave it out in a __getstate__ method of the optimizer's class.",
                field="optimizer",
            )
    return None


def _beside(parameter: Tensor, value: Any) -> Any:
    """Move a parameter's state to the parameter's device. A file's tensors are on the CPU, where counters stay."""
    if parameter.device.type == "cpu":
        return value
    return nested.convert(value, lambda t: t.to(parameter.device) if t.shape == parameter.shape else t)


def group_scalars(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return everything in the parameter groups except the parameters, such as learning rates."""
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def put_group_scalars(optimizer: torch.optim.Optimizer, scalars: list[dict[str, Any]]) -> None:
    """Set what `group_scalars` returned on another member."""
    if len(scalars) != len(optimizer.param_groups):
        raise Unprocessable("The optimizer's parameter groups differ between workers.", field="optimizer")
    for group, values in zip(optimizer.param_groups, scalars, strict=True):
        group.update(values)


def put_state_dict(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load what `optimizer.state_dict()` returned, in place and without a cast, as `restore` does."""
    if type(optimizer).load_state_dict is not torch.optim.Optimizer.load_state_dict:
        optimizer.load_state_dict(saved)
        return
    # In place: an optimizer around others shares its groups with them, and a scheduler changes them by these objects.
    put_group_scalars(optimizer, [{k: v for k, v in group.items() if k != "params"} for group in saved["param_groups"]])
    parameters = _parameters(optimizer)
    optimizer.state.clear()
    for key, value in saved["state"].items():
        if isinstance(key, int):
            optimizer.state[parameters[key]] = _beside(parameters[key], value)
        else:
            optimizer.state[key] = value


@torch.no_grad()
def put_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Set parameters and buffers by name. A tensor that lies in the model's memory already is left alone."""
    there = dict(own_tensors(model))
    for name, tensor in tensors.items():
        own = there.get(name)
        if own is not None and _alike(own, tensor):
            # Write only where bits differ: a buffer may be an expanded view, and copy_ into such a view fails.
            if own.data_ptr() == tensor.data_ptr():
                continue
            if own.device != tensor.device or not _equal(own, tensor):
                own.copy_(tensor)
            continue
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        if leaf in module._parameters:
            raise Unprocessable(f"The parameter {name} has another shape in another worker.", field="model")
        # A buffer that was created, or got its shape, during the training.
        module._buffers[leaf] = tensor


def flags(model: nn.Module) -> Flags:
    """Return which modules are in training mode and which parameters want a gradient, both in the model's order."""
    return [module.training for module in model.modules()], [p.requires_grad for p in model.parameters()]


def put_flags(model: nn.Module, values: Flags) -> None:
    """Set what `flags` returned on another member."""
    modes, wants = values
    for module, training in zip(model.modules(), modes, strict=True):
        module.training = training
    for parameter, wanted in zip(model.parameters(), wants, strict=True):
        parameter.requires_grad_(wanted)


def own_copies(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers by name."""
    return {name: tensor.clone() for name, tensor in own_tensors(model)}


def differing(model: nn.Module, before: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters and buffers with bits that differ from `before`."""
    return {
        name: tensor for name, tensor in own_tensors(model) if name not in before or not _equal(tensor, before[name])
    }


def own_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and buffers by name, sharing the model's memory."""
    for name, parameter in model.named_parameters():
        yield name, parameter.detach()
    for name, buffer in model.named_buffers():
        yield name, buffer.detach()


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def memory_of(tensor: Tensor) -> Tensor:
    """Return a dense tensor's memory as bytes: uint8 [numel × itemsize], without a copy."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same shape, type and bits. NaN equals itself, and 0.0 differs from −0.0."""
    return _alike(one, other) and torch.equal(memory_of(one.contiguous()), memory_of(other.contiguous()))
