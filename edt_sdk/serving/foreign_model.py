"""Answer with models that other programs have written: folders of MLflow, and ONNX files.

A model of arrays is served like a trained one: what it says of its inputs is its signature, so that a request that does
not fit is refused with a sentence, and several requests are computed as one batch. A model of MLflow that takes the
columns of a table gets rows, like a predictor.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.serving.examples import DATATYPE_OF, DATATYPES, Examples, FeatureLayout
from edt_sdk.schemas.serving.replica_channel import Signature, Tensor
from edt_sdk.serving.calls import Array, BadRequest
from edt_sdk.serving.package_predictor import PackagePredictor
from edt_sdk.serving.trained_model import TrainedModel

# What ONNX calls the types that it names otherwise than numpy.
_ONNX = {"float": "FP32", "double": "FP64", "float16": "FP16", "bool": "BOOL"}
_CPU = torch.device("cpu")


class _Called(nn.Module):
    """A function of arrays in the place of torch's model. It takes their names where the model has some."""

    def __init__(self, call: Callable[[Any], Mapping[str, Array]]) -> None:
        super().__init__()
        self._call = call

    def forward(self, given: torch.Tensor | Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the outputs by name."""
        whole = (
            given.numpy() if isinstance(given, torch.Tensor) else {name: each.numpy() for name, each in given.items()}
        )
        return {name: torch.from_numpy(np.array(array)) for name, array in self._call(whole).items()}


def onnx_model(path: Path, *, max_batch: int, exact: bool) -> TrainedModel:
    """Load an ONNX file. Unprocessable where it, or what runs it, cannot be used.

    A file that was exported for batches of one size gets batches of that size, filled up with zeros.
    """
    runtime = _module("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that spin while they wait take the time of the replicas beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = runtime.InferenceSession(str(path), options, providers=runtime.get_available_providers())
    except Exception as wrong:  # its errors have no common class
        raise Unprocessable(f"{path.name} cannot be loaded: {wrong}") from None
    inputs, outputs = session.get_inputs(), session.get_outputs()
    sizes = {each.shape[0] for each in inputs if each.shape and isinstance(each.shape[0], int)}
    if len(sizes) > 1 or any(not each.shape for each in inputs):
        raise Unprocessable(
            f"{path.name} has inputs without a common first dimension, that of the rows.",
            hint="Export it with rows first in every input.",
        )
    names = [each.name for each in outputs]

    def call(arrays: Any) -> Mapping[str, Array]:
        return dict(zip(names, map(np.asarray, session.run(None, arrays)), strict=True))

    signature = Signature(tuple(map(_onnx_tensor, inputs)), tuple(map(_onnx_tensor, outputs)))
    return _served(call, signature, max_batch=min(sizes, default=max_batch), exact=exact or bool(sizes))


def mlflow_model(folder: Path, *, max_batch: int, exact: bool) -> TrainedModel | PackagePredictor:
    """Load a folder with an `MLmodel`. Raises what its code raises, and Unprocessable without MLflow."""
    pyfunc = _module("mlflow.pyfunc", "mlflow")
    # MLflow would take the first GPU that it sees, and report its use to its makers.
    os.environ.setdefault("MLFLOW_DEFAULT_PREDICTION_DEVICE", str(_CPU))
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    model = pyfunc.load_model(str(folder))
    inputs, outputs = model.metadata.get_input_schema(), model.metadata.get_output_schema()
    if inputs is not None and not _of_numbers(inputs):
        return PackagePredictor(_Table(model, inputs), max_batch)
    named = inputs is not None and inputs.has_input_names()

    def call(arrays: Any) -> Mapping[str, Array]:
        whole = arrays if named or not isinstance(arrays, Mapping) else next(iter(arrays.values()))
        return _by_name(model.predict(whole))

    signature = None
    if inputs is not None:
        known = outputs is not None and _of_numbers(outputs)
        signature = Signature(_mlflow_tensors(inputs, "input"), _mlflow_tensors(outputs, "output") if known else ())
    return _served(call, signature, max_batch=max_batch, exact=exact)


class _Table:
    """A model of MLflow that takes columns, as a predictor: a row is a dictionary, or a list in the order of them."""

    def __init__(self, model: Any, columns: Any) -> None:
        self._model = model
        self._refused = importlib.import_module("mlflow.exceptions").MlflowException
        self._kinds = {} if columns.is_tensor_spec() else {each.name: each.type for each in columns if each.name}

    def predict(self, rows: Sequence[Any]) -> list[Any]:
        """Return the answer to each row. BadRequest where the rows have not the columns of the model."""
        frame = self._frame(rows)
        try:
            found = self._model.predict(frame)
        except self._refused as wrong:
            # Before the cause MLflow prints the whole table.
            raise BadRequest(" ".join(str(wrong).rpartition("Error: ")[2].split())) from None
        return list(found.to_dict("records")) if hasattr(found, "columns") else np.asarray(found).tolist()

    def _frame(self, rows: Sequence[Any]) -> Any:
        pandas = importlib.import_module("pandas")
        columns = None if not self._kinds or isinstance(rows[0], dict) else list(self._kinds)
        try:
            frame = pandas.DataFrame(list(rows), columns=columns)
            # JSON has one kind of number, and MLflow refuses 1.0 for a whole number and 1 for a narrow one.
            kinds = {name: kind.to_pandas() for name, kind in self._kinds.items() if hasattr(kind, "to_pandas")}
            return frame.astype({name: kind for name, kind in kinds.items() if name in frame})
        except (ValueError, TypeError) as wrong:
            raise BadRequest(f"the rows do not fit the columns of the model: {wrong}") from None


def _served(
    call: Callable[[Any], Mapping[str, Array]], signature: Signature | None, *, max_batch: int, exact: bool
) -> TrainedModel:
    examples = None if signature is None else Examples(signature=signature, layout=FeatureLayout.DICT)
    return TrainedModel(_Called(call), _CPU, examples, max_batch=max_batch, exact=exact)


def _module(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as absent:
        raise Unprocessable(
            f"This model needs {absent.name}, which is not installed here.",
            hint=f"pip install 'jupyter-edt[{extra}]'",
        ) from None


def _onnx_tensor(described: Any) -> Tensor:
    kind = described.type.removeprefix("tensor(").removesuffix(")")
    datatype = _ONNX.get(kind, DATATYPE_OF.get(kind, ""))
    if datatype not in DATATYPES:
        raise Unprocessable(f"{described.name} is a {described.type}, which no request can have.")
    sizes = tuple(size if isinstance(size, int) else -1 for size in described.shape)
    return Tensor(described.name, datatype, (-1, *sizes[1:]))


def _of_numbers(schema: Any) -> bool:
    """Return whether MLflow describes arrays of numbers: a signature may have columns and texts too."""
    return bool(schema.is_tensor_spec()) and all(each.type.name in DATATYPE_OF and each.shape for each in schema)


def _mlflow_tensors(schema: Any, default: str) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(each.name or default, DATATYPE_OF[each.type.name], (-1, *map(int, each.shape[1:]))) for each in schema
    )


def _by_name(found: Any) -> Mapping[str, Array]:
    if isinstance(found, Mapping):
        return {str(name): np.asarray(value) for name, value in found.items()}
    if hasattr(found, "columns"):
        return {str(name): found[name].to_numpy() for name in found.columns}
    return {"output": np.asarray(found)}
