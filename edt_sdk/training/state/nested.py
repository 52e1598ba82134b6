"""Convert nested structures of tensors: the tuples, named tuples, lists and dictionaries of data sets and models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def convert(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the same structure with every tensor changed. An object that holds no tensors stays as it is."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(convert(item, change) for item in value))
    # Plain containers only: the constructor of a subclass may take other arguments.
    if type(value) in (tuple, list):
        return type(value)(convert(item, change) for item in value)
    if type(value) is dict:
        return {key: convert(item, change) for key, item in value.items()}
    return value


def to_device(value: Any, device: torch.device) -> Any:
    """Return the same structure on a device. The method `to` of objects of other types is called where they have one.

    Tensors move to a GPU through pinned memory (unverified: our tests have no GPU).
    """
    if isinstance(value, Tensor):
        if device.type == "cuda" and value.device.type == "cpu":
            value = value.pin_memory()  # a transfer is asynchronous from pinned memory only
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if type(value) in (tuple, list):
        return type(value)(to_device(item, device) for item in value)
    if type(value) is dict:
        return {key: to_device(item, device) for key, item in value.items()}
    move = getattr(value, "to", None)
    return move(device) if callable(move) else value
