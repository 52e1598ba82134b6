"""Export the trained model to an ONNX file, as WMLA's `enable_onnx` and `save_to_onnx` do.

Torch's exporter writes the file and needs the packages `onnx` and `onnxscript` (the extra `onnx`). The input has the
shape of the training's own samples, with a batch dimension of any size, and the model is in evaluation mode. An export
never decides how a training ends: a model that cannot be exported is a line in the log, and its weights are there as a
state dict. The exporter is imported when the training is over.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edt_sdk.training.checkpoints import durable
from edt_sdk.training.sampling.order import TRAIN, BatchKey, Order
from edt_sdk.training.sampling.seeds import preserved
from edt_sdk.training.state import nested, state
from edt_sdk.training.update.update import Loader

log = logging.getLogger(__name__)

NAME = "model_epoch_final.onnx"
_INSTALL = "pip install 'jupyter-edt[onnx]'"
_NEEDED = ("onnx", "onnxscript")
# An ONNX file is one protobuf message of at most 2 GiB. Larger weights go into a second file next to it.
_LARGEST_MESSAGE = 1 << 30


def impediment() -> str:
    """Return the packages that an export lacks here and how to install them, "" when all are installed."""
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed here. {_INSTALL}"


def attempt(folder: Path, model: nn.Module, loader: Loader, order: Order, device: torch.device) -> None:
    """Write `model_epoch_final.onnx` into `folder`, or log why there is none. The model's modes are restored."""
    why = impediment()
    if why:
        log.warning("No ONNX file was written: %s", why)
        return
    flags = state.flags(model)
    model.eval()
    try:
        # Exporters replace random functions and draw numbers. The job's next training must not depend on that.
        with preserved(), torch.no_grad(), _quiet():
            _write(folder, model, nested.to_device(_features(loader, order), device))
    except Exception as error:  # exporters raise anything for a model they cannot export
        log.warning(
            "No ONNX file was written: this model cannot be exported (%s). Its weights are in model_epoch_final.pth.",
            _reason(error),
        )
        return
    finally:
        state.put_flags(model, flags)
    log.info("The model is also in %s, with a first dimension of any size.", folder / NAME)


def _features(loader: Loader, order: Order) -> Any:
    """Return the features of the first two samples: an exporter takes a dimension of size 1 for a constant."""
    # No batch of the training has this key, as its epoch comes after the last one.
    data = loader.take(BatchKey(TRAIN, order.epochs, 0, 0, (0, min(1, order.samples - 1)))).data
    return data[0] if isinstance(data, tuple | list) else data


def _write(folder: Path, model: nn.Module, features: Any) -> None:
    outputs = model(features)
    names: dict[str, Any] = {}
    if isinstance(features, Tensor):
        names["input_names"] = ["input"]
    if isinstance(outputs, Tensor):
        names["output_names"] = ["output"]
    folder.mkdir(parents=True, exist_ok=True)
    # The exporter writes its files in place. A folder on the same file system lets the finished files be renamed.
    with tempfile.TemporaryDirectory(prefix=".onnx.", suffix=".tmp", dir=folder) as temporary:
        made = Path(temporary) / NAME
        torch.onnx.export(
            model,
            (features, {}),  # without the second one, a dictionary of features would be taken for keyword arguments
            made,
            dynamo=True,
            dynamic_shapes=(nested.convert(features, _dimensions),),
            external_data=sum(t.nbytes for t in (*model.parameters(), *model.buffers())) > _LARGEST_MESSAGE,
            verbose=False,
            **names,
        )
        # Weights first: a reader that finds the model must find the weights it refers to.
        for path in sorted(Path(temporary).iterdir(), key=lambda path: path.name == NAME):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(path, folder / path.name)
    durable.sync(folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporter's warnings about packages that are not installed and about its own deprecated parts."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _dimensions(tensor: Tensor) -> Any:
    return {0: "batch"} if tensor.dim() and len(tensor) == 2 else {}


def _reason(error: BaseException) -> str:
    """Return the first line of the first error, as exporters wrap errors in long advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
