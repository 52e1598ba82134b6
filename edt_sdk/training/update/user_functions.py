"""Define the functions that a user provides for a training: their types, their arguments and their results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

LossFunction = Callable[[Any, Any], Tensor]
Metric = Callable[[Any, Any], Any]
StepFunction = Callable[..., tuple[Any, Any]]
# Receives outputs and labels of each batch in a validation.
Observer = Callable[[Any, Any], None]


def metric_names(metrics: Sequence[Metric]) -> tuple[str, ...]:
    """Return a name for each metric: its `__name__`, else its class, with a number after repeated names."""
    names: list[str] = []
    for metric in metrics:
        name = str(getattr(metric, "__name__", type(metric).__name__))
        taken = names.count(name) + sum(other.startswith(f"{name}_") for other in names)
        names.append(f"{name}_{taken + 1}" if name in names else name)
    return tuple(names)


def plain(value: Any) -> float:
    """Return a tensor with a single element, or a number, as a Python float."""
    return float(value.detach() if isinstance(value, Tensor) else value)


def number_or_none(value: Any) -> float | None:
    """Return a count of correct samples as a plain number, None for None and NaN."""
    if value is None:
        return None
    number = plain(value)
    return None if math.isnan(number) else number


class ModelFacade:
    """Presents the model as WMLA's custom steps expect it: with its optimizer and loss function."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, loss_function: LossFunction | None) -> None:
        # Not by plain assignments: `__setattr__` below writes to the model.
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_optimizer", optimizer)
        object.__setattr__(self, "_loss_function", loss_function)
        object.__setattr__(self, "_outputs", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward pass."""
        outputs = self._module(*args, **kwargs)
        object.__setattr__(self, "_outputs", outputs)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def get_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer. The engine steps it, the custom step must not."""
        optimizer: torch.optim.Optimizer = self._optimizer
        return optimizer

    def get_loss_function(self) -> LossFunction:
        """Return the loss function given to FabricModel."""
        loss_function: LossFunction = self._loss_function
        return loss_function
