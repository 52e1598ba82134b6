"""Write a version's model for other programs: an ONNX file, or a folder of MLflow that needs torch alone."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edt_sdk.schemas.errors import EdtError, Unprocessable
from edt_sdk.schemas.serving.examples import Examples, FeatureLayout
from edt_sdk.training.checkpoints import onnx_file
from edt_sdk.training.state.named_tensors import features_of


def to_onnx(target: Path, model: nn.Module, examples: Examples) -> None:
    """Write an ONNX file. Unprocessable where a package is missing, or the exporter cannot read the model."""
    if why := onnx_file.impediment():
        raise Unprocessable(f"No ONNX file can be written: {why}")
    try:
        onnx_file.write(target, model, _two_rows(examples))
    except Exception as error:  # exporters raise anything for a model they cannot export
        raise _refused(error) from None


def to_mlflow(target: Path, model: nn.Module, examples: Examples) -> None:
    """Write a folder of MLflow with the graph of the model, as `torch.export` records it.

    Raises:
        Unprocessable: MLflow is missing, the model takes more than one array, or its graph cannot be recorded.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise Unprocessable("MLflow is not installed here.", hint="pip install 'jupyter-edt[mlflow]'")
    if examples.layout is not FeatureLayout.TENSOR:
        raise Unprocessable(
            "MLflow's models of torch take one array, and this one takes several.",
            hint="Export it as ONNX: version.export(model, 'onnx')",
        )
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # or it would report its use to its makers
    mlflow, models = importlib.import_module("mlflow.pytorch"), importlib.import_module("mlflow.models")
    rows = _two_rows(examples)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            onnx_file.evaluated(model),
            tempfile.TemporaryDirectory(prefix=".mlflow.", suffix=".tmp", dir=target.parent) as folder,
        ):
            mlflow.save_model(
                model,
                f"{folder}/made",
                serialization_format="pt2",
                signature=models.infer_signature(rows.numpy(), model(rows).numpy()),
                input_example=rows.numpy(),
                pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}", "numpy"],
            )
            shutil.rmtree(target, ignore_errors=True)
            Path(folder, "made").rename(target)
    except Exception as error:  # as above
        raise _refused(error) from None


def _two_rows(examples: Examples) -> Any:
    """Return the model's argument for the first example twice: a dimension of size 1 would be taken for a constant."""
    files = {name: io.BytesIO(file) for name, file in examples.examples[0].inputs.items()}
    arrays = {name: np.lib.format.read_array(file, allow_pickle=False) for name, file in files.items()}
    tensors = {name: torch.from_numpy(np.concatenate([array, array])) for name, array in arrays.items()}
    (features,) = features_of(examples.layout, tensors)
    return features


def _refused(error: Exception) -> EdtError:
    if isinstance(error, OSError):
        return Unprocessable(f"The model cannot be written: {error}")
    return Unprocessable(
        f"This model cannot be exported: {onnx_file.reason(error)}",
        hint="Its weights are a state dict: version.download()",
    )
