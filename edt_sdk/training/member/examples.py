"""Write what a trained model takes and returns, with examples (`edt_sdk.schemas.serving.examples`).

The examples are the first samples of the test set, or of the training set where there is no other, each alone in a
batch. The outputs are those of the final model in evaluation mode. A model that this does not fit gets no file, as it
can be served without one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from edt_sdk.schemas.serving import replica_channel
from edt_sdk.schemas.serving.examples import DATATYPE_OF, Example, Examples, FeatureLayout
from edt_sdk.schemas.serving.replica_channel import Signature
from edt_sdk.training.checkpoints import durable
from edt_sdk.training.member.parts import Data
from edt_sdk.training.sampling.order import TEST, TRAIN, BatchKey
from edt_sdk.training.sampling.seeds import preserved
from edt_sdk.training.state import nested, state
from edt_sdk.training.state.named_tensors import named_features, named_outputs, to_array

MOST_EXAMPLES = 3
# Bytes of a row, or of the answer to it. The file travels with its version.
LARGEST_ROW = 1 << 20
_Arrays = dict[str, np.ndarray[Any, Any]]
_Row = tuple[FeatureLayout, _Arrays, _Arrays]


def attempt(path: Path, model: nn.Module, data: Data, device: torch.device) -> None:
    """Write the file, or none. Modes, parameters, buffers and random states are restored."""
    flags, before = state.flags(model), state.own_copies(model)
    model.eval()
    try:
        with preserved(), torch.no_grad():
            found = _examples(list(_rows(model, data, device)))
        durable.write(path, lambda file: file.write(msgspec.json.encode(found)))
    except Exception:  # data sets, collate functions and models raise anything, and full disks too
        return
    finally:
        state.put_flags(model, flags)
        state.put_tensors(model, {name: before[name] for name in state.differing(model, before) if name in before})


def _rows(model: nn.Module, data: Data, device: torch.device) -> Iterator[_Row]:
    kind, samples = (TEST, data.test_order.samples) if data.test_order.samples else (TRAIN, data.order.samples)
    for index in range(min(MOST_EXAMPLES, samples)):
        # No batch of the training has this key, as its epoch comes after the last one.
        features, _ = data.loader.take(BatchKey(kind, data.order.epochs, index, 0, (index,))).data
        layout, inputs = named_features(features)
        if any(tensor.dtype is torch.bfloat16 for tensor in inputs.values()):
            raise ValueError("a request cannot have this datatype")
        outputs = named_outputs(model(nested.to_device(features, device)))
        yield layout, _arrays(inputs), _arrays(outputs)


def _arrays(tensors: Mapping[str, Tensor]) -> _Arrays:
    if any(tensor.dim() == 0 or len(tensor) != 1 for tensor in tensors.values()):
        raise ValueError("the first dimension is not that of the rows")
    arrays = {name: to_array(tensor) for name, tensor in tensors.items()}
    if sum(array.nbytes for array in arrays.values()) > LARGEST_ROW:
        raise ValueError("a row is too large")
    return arrays


def _examples(rows: Sequence[_Row]) -> Examples:
    layouts, inputs, outputs = zip(*rows, strict=True)
    (layout,) = set(layouts)
    return Examples(
        signature=Signature(_described(inputs), _described(outputs)),
        layout=layout,
        examples=tuple(Example(_files(given), _files(answer)) for given, answer in zip(inputs, outputs, strict=True)),
    )


def _described(rows: Sequence[_Arrays]) -> tuple[replica_channel.Tensor, ...]:
    """Return names, datatypes and shapes. A size that differs between rows is free. ValueError where more differs."""
    (names,) = {tuple(row) for row in rows}
    return tuple(_tensor(name, [row[name] for row in rows]) for name in names)


def _tensor(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> replica_channel.Tensor:
    (kind,) = {array.dtype.name for array in arrays}
    sizes = [set(each) for each in zip(*(array.shape[1:] for array in arrays), strict=True)]
    shape = (-1, *(min(each) if len(each) == 1 else -1 for each in sizes))
    return replica_channel.Tensor(name, DATATYPE_OF[kind], shape)


def _files(arrays: _Arrays) -> dict[str, bytes]:
    files = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array)
        files[name] = file.getvalue()
    return files
