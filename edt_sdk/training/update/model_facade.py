"""Present the model as WMLA's custom steps expect it, in training and in a custom test."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edt_sdk.training.update.user_functions import LossFunction


class ModelFacade:
    """Forwards calls and attributes to the model, and returns its optimizer and loss function."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, loss_function: LossFunction) -> None:
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
