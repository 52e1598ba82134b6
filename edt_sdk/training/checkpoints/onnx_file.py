"""Write a model to an ONNX file.

Torch's exporter writes it and needs the packages `onnx` and `onnxscript` (the extra `onnx`). The model is in evaluation
mode, and takes any number of rows. The exporter is imported with the first file.
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
from edt_sdk.training.sampling.seeds import preserved
from edt_sdk.training.state import nested, state
from edt_sdk.training.state.named_tensors import named_features, named_outputs

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


def write(path: Path, model: nn.Module, features: Any) -> None:
    """Write a model as it is in evaluation mode, with a first dimension of any size. Raises what the exporter raises.

    Args:
        path: of the file. Its folder is made when missing.
        model: its modes are restored.
        features: its argument for two rows: an exporter takes a dimension of size 1 for a constant.
    """
    with evaluated(model), _quiet():
        _write(path, model, features)


@contextlib.contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """Let an exporter have the model in evaluation mode. Modes and random states are restored."""
    flags = state.flags(model)
    model.eval()
    try:
        # Exporters replace random functions and draw numbers. The job's next training must not depend on that.
        with preserved(), torch.no_grad():
            yield
    finally:
        state.put_flags(model, flags)


def _write(path: Path, model: nn.Module, features: Any) -> None:
    # The names under which a replica knows the tensors too. Features of another kind get the exporter's own names.
    names: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        names["input_names"] = list(named_features(features)[1])
    with contextlib.suppress(ValueError):
        names["output_names"] = list(named_outputs(model(features)))
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    # The exporter writes its files in place. A folder on the same file system lets the finished files be renamed.
    with tempfile.TemporaryDirectory(prefix=".onnx.", suffix=".tmp", dir=folder) as temporary:
        made = Path(temporary) / path.name
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
        for each in sorted(Path(temporary).iterdir(), key=lambda each: each == made):
            with each.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(each, folder / each.name)
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


def reason(error: BaseException) -> str:
    """Return the first line of the first error, as exporters wrap errors in long advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
