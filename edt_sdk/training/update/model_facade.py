"""The model as WMLA's custom steps see it, in training and in a test of the user's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edt_sdk.training.update.user_functions import LossFunction


class ModelFacade:
    """Call it, read any attribute, ask for optimizer and loss function."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, loss_function: LossFunction) -> None:
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_optimizer", optimizer)
        object.__setattr__(self, "_loss_function", loss_function)
        object.__setattr__(self, "_outputs", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The forward pass."""
        outputs = self._module(*args, **kwargs)
        object.__setattr__(self, "_outputs", outputs)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def get_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer; it is stepped by the engine, never by the custom step."""
        optimizer: torch.optim.Optimizer = self._optimizer
        return optimizer

    def get_loss_function(self) -> LossFunction:
        """The loss function given to FabricModel."""
        loss_function: LossFunction = self._loss_function
        return loss_function
