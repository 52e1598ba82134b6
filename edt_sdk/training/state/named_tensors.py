"""Give names to the tensors that a model takes and returns, and put named tensors together again.

A training that writes examples of its model and a replica that answers requests use the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edt_sdk.schemas.serving.examples import DATATYPE_OF, FeatureLayout


def named_features(features: Any) -> tuple[FeatureLayout, dict[str, Tensor]]:
    """Return the layout of a batch's features, and its tensors by name. ValueError where there are other objects.

    A single tensor is called "input". Those of a sequence are called "input_0", "input_1" and so on.
    """
    if isinstance(features, Tensor):
        return FeatureLayout.TENSOR, {"input": features}
    if type(features) in (tuple, list):
        layout = FeatureLayout.TUPLE if type(features) is tuple else FeatureLayout.LIST
        return layout, _tensors({f"input_{number}": each for number, each in enumerate(features)})
    if type(features) is dict and all(isinstance(name, str) for name in features):
        return FeatureLayout.DICT, _tensors(features)
    raise ValueError(f"the features are a {type(features).__name__}")


def features_of(layout: FeatureLayout | None, tensors: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """Return the arguments of a model's call. Without a known layout, each tensor is an argument."""
    values = tuple(tensors.values())
    if layout is None or layout is FeatureLayout.TENSOR:
        return values
    return (
        dict(tensors) if layout is FeatureLayout.DICT else values if layout is FeatureLayout.TUPLE else list(values),
    )


def named_outputs(outputs: Any) -> dict[str, Tensor]:
    """Return what a model returned, by name: "output", "output_0" and so on, or the names of a dictionary.

    Raises:
        ValueError: there is anything but tensors in it.
    """
    if isinstance(outputs, Tensor):
        return {"output": outputs}
    if isinstance(outputs, Mapping):
        return _tensors(outputs)
    if isinstance(outputs, tuple | list):
        return _tensors({f"output_{number}": each for number, each in enumerate(outputs)})
    raise ValueError(f"the model returned a {type(outputs).__name__}, which is no tensor")


def to_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array, bfloat16 as float32. ValueError for a type without a datatype in the protocol."""
    plain = tensor.detach().to("cpu", torch.float32 if tensor.dtype is torch.bfloat16 else tensor.dtype)
    kind = str(plain.dtype).removeprefix("torch.")
    if kind not in DATATYPE_OF:
        raise ValueError(f"there is no datatype for {kind}")
    return plain.numpy()


def _tensors(values: Mapping[Any, Any]) -> dict[str, Tensor]:
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} is a {type(value).__name__}, which is no tensor")
    if not values:
        raise ValueError("there is no tensor")
    return {str(name): value for name, value in values.items()}
