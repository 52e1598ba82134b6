"""Load the weights of another training, a `.pth` file with a state dict, into a model that they fit."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import nn

from edt_sdk.schemas.errors import Unprocessable


def load_weights(path: Path, model: nn.Module) -> None:
    """Load a state dict into `model` in place, on the model's own device.

    Raises:
        Unprocessable: the file is missing or holds no state dict, or its names or shapes do not fit the model's.
    """
    try:
        # weights_only: a file from elsewhere must not run code here.
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Unprocessable(
            f"The weights to begin with cannot be read from {path}: {error}",
            hint="Begin with a .pth file of a job, such as model_epoch_final.pth.",
            field="warm_start",
        ) from error
    if not isinstance(weights, dict):
        raise Unprocessable(f"{path} holds a {type(weights).__name__}, not a state dict.", field="warm_start")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise Unprocessable(
            f"The weights in {path} do not fit this model: {error}",
            hint="Begin with the weights of a model with the same layers, names and shapes.",
            field="warm_start",
        ) from error
