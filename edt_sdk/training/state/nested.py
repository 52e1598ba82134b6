"""Convert nested structures of tensors: the tuples, named tuples, lists and dictionaries of data sets and models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def convert(value: Any, change: Callable[[Tensor], Tensor], other: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return the same structure with every tensor changed, and every other object as `other` returns it."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(convert(item, change, other) for item in value))
    # Plain containers only: the constructor of a subclass may take other arguments.
    if type(value) in (tuple, list):
        return type(value)(convert(item, change, other) for item in value)
    if type(value) is dict:
        return {key: convert(item, change, other) for key, item in value.items()}
    return other(value)


def to_device(value: Any, device: torch.device) -> Any:
    """Return the same structure on a device. The method `to` of objects of other types is called where they have one.

    Tensors move to a GPU through pinned memory (unverified: our tests have no GPU).
    """

    def moved(tensor: Tensor) -> Tensor:
        if device.type == "cuda" and tensor.device.type == "cpu":
            tensor = tensor.pin_memory()  # a transfer is asynchronous from pinned memory only
        return tensor.to(device, non_blocking=True)

    def other(part: Any) -> Any:
        move = getattr(part, "to", None)
        return move(device) if callable(move) else part

    return convert(value, moved, other)
