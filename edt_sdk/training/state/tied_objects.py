"""Pickle objects that refer to the model, the optimizer or their parts, for a process that already has them.

Every worker has its own copy of model and optimizer. When a callback or an optimizer's state moves from one worker to
another, references to those objects travel as names and become references to the receiver's own. Other tensors can be
taken out of the pickle and sent as memory.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch import Tensor, nn

from edt_sdk.training.state import previous_version as former
from edt_sdk.training.state.pickling import Pickler
from edt_sdk.training.state.several_optimizers import separate

Name = tuple[str, Any]


def freeze(value: object, model: nn.Module, optimizer: torch.optim.Optimizer, tensors: list[Tensor] | None) -> bytes:
    """Pickle `value` with cloudpickle, with names in place of parts of model and optimizer.

    Plain tensors are appended to `tensors`, each once, instead of being pickled. None pickles them.
    """
    file = io.BytesIO()
    _Pickler(file, _names(model, optimizer), tensors).dump(value)
    return file.getvalue()


def thaw(data: bytes, model: nn.Module, optimizer: torch.optim.Optimizer, tensors: list[Tensor] | None) -> Any:
    """Return the value given to `freeze`, with this process's model and optimizer and with these tensors."""
    return _Unpickler(io.BytesIO(data), model, optimizer, tensors).load()


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[int, Name]:
    names: dict[int, Name] = {}
    for number, each in enumerate(separate(optimizer)):
        names[id(each)] = "optimizer", number
        names[id(each.state)] = "state", number
        names[id(each.param_groups)] = "groups", number
    names.update((id(group), ("group", i)) for i, group in enumerate(optimizer.param_groups))
    names.update((id(module), ("module", name)) for name, module in model.named_modules())
    names.update((id(parameter), ("parameter", name)) for name, parameter in model.named_parameters())
    names.update((id(buffer), ("buffer", name)) for name, buffer in model.named_buffers())
    return names


class _Pickler(Pickler):
    def __init__(self, file: io.BytesIO, names: dict[int, Name], tensors: list[Tensor] | None) -> None:
        super().__init__(file)
        self._names = names
        self._tensors = tensors
        self._taken: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Name | None:
        name = self._names.get(id(obj))
        if name is not None or self._tensors is None or not _is_plain(obj):
            return name
        # Each tensor once, so that objects that share a tensor here also share it at the receiver.
        if id(obj) not in self._taken:
            self._taken[id(obj)] = len(self._tensors)
            self._tensors.append(obj)
        return "tensor", self._taken[id(obj)]


class _Unpickler(former.Unpickler):
    def __init__(
        self, file: io.BytesIO, model: nn.Module, optimizer: torch.optim.Optimizer, tensors: list[Tensor] | None
    ) -> None:
        super().__init__(file)
        self._model = model
        self._optimizer = optimizer
        self._tensors = tensors or []

    def persistent_load(self, name: Any) -> Any:
        match name:
            case "tensor", index:
                return self._tensors[index]
            case "module", path:
                return self._model.get_submodule(path)
            case "parameter", path:
                return self._model.get_parameter(path)
            case "buffer", path:
                return self._model.get_buffer(path)
            case "group", index:
                return self._optimizer.param_groups[index]
            # None instead of a number where there was a single optimizer only.
            case "groups", number:
                return separate(self._optimizer)[number or 0].param_groups
            case "state", number:
                return separate(self._optimizer)[number or 0].state
            case "optimizer", number:
                return separate(self._optimizer)[number or 0]
        raise pickle.UnpicklingError(f"unknown name {name!r}")


def _is_plain(value: object) -> bool:
    # Parameters, other subclasses and tensors that take part in autograd are more than their memory.
    if type(value) is not Tensor:
        return False
    return value.layout is torch.strided and not value.is_quantized and not value.requires_grad
