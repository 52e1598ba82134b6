"""Answer with a trained model: load its weights, stack rows into batches, compare its examples.

With `exact` every batch has the same number of rows, some of them zeros. The kernels of a batch depend on its size
alone, so the bits of an answer then do not depend on the requests that came with it.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.schemas.serving.examples import DATATYPE_OF, SIGNATURE_FILE, Examples
from edt_sdk.schemas.serving.replica_channel import Signature
from edt_sdk.serving.calls import Array, InferenceCall, Outputs, Unanswerable
from edt_sdk.serving.fitting import Expected, Fitted
from edt_sdk.training.checkpoints import model_files
from edt_sdk.training.state.named_tensors import features_of, named_outputs, to_array

log = logging.getLogger(__name__)

# A difference of more than this part of the largest number of an example is worth a line in the log.
_TOLERANCE = 1e-5
_ALIGNMENT = 64


class TrainedModel:
    """Computes the answers of a model in evaluation mode on one device.

    Args:
        model: with its weights.
        examples: what it takes and returns, None where that is not known.
        max_batch: most rows that are computed at once.
        exact: every batch has `max_batch` rows.
    """

    def __init__(
        self, model: nn.Module, device: torch.device, examples: Examples | None, *, max_batch: int, exact: bool
    ) -> None:
        self._model = model.to(device).eval()
        self._device = device
        self._examples = examples
        self._layout = None if examples is None else examples.layout
        self._max_batch = max_batch
        self._exact = exact
        floating = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
        # Numpy has no bfloat16. Such numbers are float32 until they are in their batch.
        self._narrow = floating if floating is torch.bfloat16 and examples is None else None
        kind = str(floating).removeprefix("torch.")
        self._expected = Expected(
            self.signature, np.dtype(kind if kind in DATATYPE_OF else "float32"), _looks_up(model)
        )

    @property
    def signature(self) -> Signature | None:
        """Return what the model takes and returns, None where that is not known."""
        return None if self._examples is None else self._examples.signature

    def fit(self, call: InferenceCall) -> Fitted:
        """Return the arrays of a request. BadRequest where they do not fit the model."""
        return self._expected.fit(call)

    def compute(self, group: Sequence[Fitted]) -> list[Outputs]:
        """Return the outputs of each request. Raises what the model raises, and Unanswerable."""
        rows = sum(each.rows for each in group)
        pieces = [self._run(piece, count) for piece, count in self._pieces(group, rows)]
        whole = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        answers: list[Outputs] = []
        at = 0
        for each in group:
            answers.append({name: array[at : at + each.rows] for name, array in whole.items()})
            at += each.rows
        return answers

    def close(self) -> None:
        """Do nothing: a model has nothing to close."""

    def _pieces(self, group: Sequence[Fitted], rows: int) -> Iterator[tuple[dict[str, Tensor], int]]:
        """Yield batches with the rows of all requests, and how many of a batch's rows are theirs."""
        most = self._max_batch
        padded = -(-rows // most) * most if self._exact else rows
        stacked = {name: _stacked([each.inputs[name] for each in group], padded) for name in group[0].inputs}
        for start in range(0, rows, most):
            piece = {name: _aligned(tensor[start : start + most]) for name, tensor in stacked.items()}
            yield piece, min(most, rows - start)

    def _run(self, piece: Mapping[str, Tensor], count: int) -> dict[str, Array]:
        """Return the outputs of a batch, without the rows that only fill it up."""
        size = len(next(iter(piece.values())))
        with torch.inference_mode():
            tensors = {name: self._moved(tensor) for name, tensor in piece.items()}
            outputs = self._model(*features_of(self._layout, tensors))
        try:
            named = {name: to_array(tensor) for name, tensor in named_outputs(outputs).items()}
        except ValueError as wrong:
            raise Unanswerable(f"the model's answer cannot be sent: {wrong}") from None
        for name, array in named.items():
            if array.ndim == 0 or len(array) != size:
                shape = tuple(array.shape)
                raise Unanswerable(f"{name} of the model has the shape {shape} for {size} rows, which must come first")
        return {name: array[:count] for name, array in named.items()}

    def _moved(self, tensor: Tensor) -> Tensor:
        narrow = self._narrow if tensor.is_floating_point() else None
        return tensor.to(self._device, narrow or tensor.dtype)

    def check(self) -> None:
        """Answer the examples once, and write to the log what differs from the answers of the training."""
        if self._examples is None:
            return
        rows = [{name: _array(file) for name, file in each.inputs.items()} for each in self._examples.examples]
        for number, (inputs, example) in enumerate(zip(rows, self._examples.examples, strict=True), 1):
            answer = self._run({name: torch.from_numpy(array).clone() for name, array in inputs.items()}, 1)
            expected = {name: _array(file) for name, file in example.outputs.items()}
            if differs := _difference(answer, expected):
                log.warning("The answer to example %d is not that of the training: %s", number, differs)
        if self._exact and len({tuple(array.shape for array in row.values()) for row in rows}) == 1:
            self._check_exact([Fitted(inputs, 1, False) for inputs in rows])

    def _check_exact(self, rows: list[Fitted]) -> None:
        """Compare answers alone with answers among others. No operator promises that they are equal."""
        alone = [self.compute([row])[0] for row in rows]
        # Each row has another place and other neighbours there.
        places = [number % len(rows) for number in reversed(range(self._max_batch))]
        together = self.compute([rows[place] for place in places])
        for place, answer in zip(places, together, strict=True):
            if any(not _same(array, alone[place][name]) for name, array in answer.items()):
                log.warning("The answers of this model depend on the requests beside them, although exact is set.")
                return


def load_weights(model: nn.Module, weights: Path, version: str) -> None:
    """Load a version's file of weights into a model. Unprocessable where they do not fit."""
    try:
        model_files.load(weights, model)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise Unprocessable(
            f"The weights of {version} do not fit the model that its script builds: {error}",
            hint="Register a version from a training with the same script and the same arguments.",
        ) from None


def load_examples(weights: Path) -> Examples | None:
    """Return what the file next to the weights describes, None where there is no such file."""
    path = weights.with_name(SIGNATURE_FILE)
    try:
        return Examples.read(path)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s cannot be read, so inputs are not checked: %s", path, error)
        return None


def _looks_up(model: nn.Module) -> bool:
    """Return whether the first layer with parameters is an embedding, which takes whole numbers."""
    leaves = (module for module in model.modules() if not any(True for _ in module.children()))
    first = next((module for module in leaves if any(True for _ in module.parameters())), None)
    return isinstance(first, nn.Embedding | nn.EmbeddingBag)


def _stacked(arrays: list[Array], rows: int) -> Tensor:
    """Return arrays one after the other, with rows of zeros up to `rows`."""
    first = arrays[0]
    stacked = torch.zeros((rows, *first.shape[1:]), dtype=getattr(torch, first.dtype.name))
    view, at = stacked.numpy(), 0
    for array in arrays:
        view[at : at + len(array)] = array
        at += len(array)
    return stacked


def _aligned(tensor: Tensor) -> Tensor:
    # The result of some matrix kernels depends on where their memory starts.
    return tensor.clone() if tensor.data_ptr() % _ALIGNMENT else tensor


def _array(file: bytes) -> Array:
    array: Array = np.lib.format.read_array(io.BytesIO(file), allow_pickle=False)
    return array


def _same(one: Any, other: Any) -> bool:
    """Return whether two arrays are equal bit for bit."""
    equal: bool = one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return equal


def _difference(found: Mapping[str, Array], expected: Mapping[str, Array]) -> str:
    """Return how outputs differ from those of an example, "" where they are equal, or nearly so."""
    if {name: array.shape for name, array in found.items()} != {name: a.shape for name, a in expected.items()}:
        return "there are other outputs, or other shapes"
    for name, array in found.items():
        one, other = array.astype(np.float64), expected[name].astype(np.float64)
        scale = float(np.nanmax(np.abs(other), initial=0.0))
        if not np.allclose(one, other, rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True):
            with np.errstate(invalid="ignore"):  # infinity less infinity
                most = float(np.nanmax(np.abs(one - other), initial=0.0))
            return f"{name} differs by up to {most:.3g}, its largest number is {scale:.3g}"
    return ""
