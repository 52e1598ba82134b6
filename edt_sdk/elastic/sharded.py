"""Say how a model is divided among workers that hold only a part of it, and refuse what cannot be divided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from edt_sdk.elastic.things import Things
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable

# Their steps compute each element by itself, so that a worker can step its part alone.
_ELEMENTWISE = frozenset(
    {"SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Rprop", "ASGD"}
)


class Sharded:
    """Divides a model among the workers of a job: parameters, gradients and the state of optimizers.

    Each worker holds a part of every parameter (FSDP2, `torch.distributed.fsdp.fully_shard`). The parameters of a block
    are gathered for its forward and its backward pass, and freed after it. The parts change hands in memory when
    workers come or go. It needs mode "fast".

    Args:
        *blocks: module classes. Each instance is gathered as a unit, for example the layers of a transformer. What is
            in none of them is a unit of its own.
    """

    def __init__(self, *blocks: type[nn.Module]) -> None:
        if not blocks or not all(isinstance(each, type) and issubclass(each, nn.Module) for each in blocks):
            raise InvalidRequest(
                "Sharded() needs the class of a module of which the model has many.",
                hint="For example parallel=edt.Sharded(Block), where Block is the class of the model's layers.",
                field="parallel",
            )
        self.blocks = blocks

    def check(self, things: Things) -> None:
        """Raise InvalidRequest or Unprocessable where the model, or something given with it, cannot be divided."""
        modules, optimizers, others = things.modules, things.optimizers, things.others
        if len(modules) > 1:
            raise InvalidRequest(
                f"A sharded training has one model, and elastic() got {', '.join(modules)}.",
                hint="Make them parts of one module. An average of the weights (EMA) cannot be kept of a sharded one.",
                field="parallel",
            )
        ((name, model),) = modules.items()
        units = [module for module in model.modules() if isinstance(module, self.blocks) and module is not model]
        if not units:
            classes = Counter(type(module).__name__ for module in model.modules() if next(module.children(), None))
            common = next((each for each, times in classes.most_common() if times > 1), "Block")
            raise InvalidRequest(
                f"{name} has no {' or '.join(each.__name__ for each in self.blocks)} in it.",
                hint=f"Name the class of its layers, for example edt.Sharded({common}).",
                field="parallel",
            )
        _check_parameters(model, units)
        for each, optimizer in optimizers.items():
            kind = type(optimizer)
            if kind.__name__ not in _ELEMENTWISE or not kind.__module__.startswith("torch.optim."):
                raise Unprocessable(
                    f"{each} is a {kind.__name__}, which may need more of a parameter than a worker has of it.",
                    hint="Use one of torch's that step each element by itself, such as AdamW or SGD.",
                    field=each,
                )
        for each, thing in others.items():
            if isinstance(thing, torch.amp.GradScaler):
                raise Unprocessable(
                    f"{each} is a GradScaler, which cannot scale the gradients of a sharded model.",
                    hint="Train in bfloat16, which needs no scaler: torch.autocast('cuda', dtype=torch.bfloat16).",
                    field=each,
                )
            if _numbers(thing.state_dict()) > sum(parameter.numel() for parameter in model.parameters()) / 2:
                raise Unprocessable(
                    f"{each} holds weights of the size of the model, and no worker has the whole model to compare.",
                    hint="Leave it out: an average of the weights (EMA) cannot be kept of a sharded model.",
                    field=each,
                )


def _numbers(value: Any) -> int:
    """Return how many numbers are in the tensors of a nested structure."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return sum(map(_numbers, parts))


def _check_parameters(model: nn.Module, units: list[nn.Module]) -> None:
    unit_of = {id(module): number for number, unit in enumerate(units, 1) for module in unit.modules()}
    homes: dict[int, int] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(path, recurse=False):
            if parameter.dim() == 0:
                raise Unprocessable(
                    f"{name} is a single number, which cannot be divided.",
                    hint="Give it a dimension: the shape [1] in place of [].",
                    field="model",
                )
            if parameter.is_meta:
                raise Unprocessable(
                    f"{name} is on the meta device.", hint="Build the model with values.", field="model"
                )
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                raise Unprocessable(
                    f"{name} has a hook, which would see a part of the gradient.",
                    hint="Change gradients between the loop over the update and update.step().",
                    field="model",
                )
            if homes.setdefault(id(parameter), unit_of.get(id(module), 0)) != unit_of.get(id(module), 0):
                raise Unprocessable(
                    f"{name} is shared by two units of the model, which are not gathered at the same time.",
                    hint="Leave the class of one of them out of edt.Sharded(…).",
                    field="model",
                )
