"""Write the trained model to an ONNX file as well, as WMLA's `enable_onnx` and `save_to_onnx` do.

The input has the shape of the training's own samples. An export never decides how a training ends: a model that cannot
be exported is a line in the log, and its weights are there as a state dict.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edt_sdk.training.checkpoints import onnx_file
from edt_sdk.training.sampling.order import TRAIN, BatchKey, Order
from edt_sdk.training.sampling.seeds import preserved
from edt_sdk.training.state import nested
from edt_sdk.training.update.update import Loader

log = logging.getLogger(__name__)

NAME = "model_epoch_final.onnx"


def attempt(folder: Path, model: nn.Module, loader: Loader, order: Order, device: torch.device) -> None:
    """Write `model_epoch_final.onnx` into `folder`, or log why there is none. The model's modes are restored."""
    why = onnx_file.impediment()
    if why:
        log.warning("No ONNX file was written: %s", why)
        return
    try:
        with preserved():
            features = nested.to_device(_features(loader, order), device)
        onnx_file.write(folder / NAME, model, features)
    except Exception as error:  # exporters raise anything for a model they cannot export
        log.warning(
            "No ONNX file was written: this model cannot be exported (%s). Its weights are in model_epoch_final.pth.",
            onnx_file.reason(error),
        )
        return
    log.info("The model is also in %s, with a first dimension of any size.", folder / NAME)


def _features(loader: Loader, order: Order) -> Any:
    """Return the features of the first two samples."""
    # No batch of the training has this key, as its epoch comes after the last one.
    data = loader.take(BatchKey(TRAIN, order.epochs, 0, 0, (0, min(1, order.samples - 1)))).data
    return data[0] if isinstance(data, tuple | list) else data
