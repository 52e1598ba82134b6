"""Structures of tensors as data sets and models use them: tuples, named tuples, lists, dictionaries, nested at will."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def convert(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with every tensor changed; anything that holds no tensors stays the object it is."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(convert(item, change) for item in value))
    if type(value) in (tuple, list):
        return type(value)(convert(item, change) for item in value)
    if type(value) is dict:
        return {key: convert(item, change) for key, item in value.items()}
    return value


def to_device(value: Any, device: torch.device) -> Any:
    """The same structure on a device; objects of other types that have a method `to` are asked to move themselves.

    To a GPU by way of pinned memory (unverified: our tests have no GPU).
    """
    if isinstance(value, Tensor):
        if device.type == "cuda" and value.device.type == "cpu":
            value = value.pin_memory()  # only from pinned memory does a transfer not wait
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if type(value) in (tuple, list):
        return type(value)(to_device(item, device) for item in value)
    if type(value) is dict:
        return {key: to_device(item, device) for key, item in value.items()}
    move = getattr(value, "to", None)
    return move(device) if callable(move) else value
