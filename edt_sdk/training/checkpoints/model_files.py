"""Write and load the `.pth` files of a training: state dicts under `model/train/`, with WMLA's names.

The names are `model_epoch_<N>.pth` and `model_epoch_<N>_optimizer_state.pth` after epoch N (from 1), and
`model_epoch_final…` at the end. Each file is written atomically. Tensors are stored on the CPU without the memory
around them, so a file's content does not depend on device, worker or engine.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edt_sdk.training.checkpoints import durable
from edt_sdk.training.checkpoints.dump import Dump

FINAL = "final"
Key = tuple[Any, ...]
Memo = dict[Key, torch.Tensor]
Pair = tuple[Any, Any]


def save(folder: Path, tag: int | str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write both files of `tag` (an epoch from 1, or `FINAL`), and create the folder when missing."""
    write(folder, tag, pair(model, optimizer))


def pair(model: nn.Module, optimizer: torch.optim.Optimizer, copies: Memo | None = None) -> Pair:
    """Return both current state dicts in separate memory.

    `copies` are tensors that are copied already, by `key`. Further copies are added.
    """
    memo: Memo = {} if copies is None else copies
    return _plain(model.state_dict(), memo), _plain(optimizer.state_dict(), memo)


def write(folder: Path, tag: int | str, states: Pair) -> None:
    """Write both files of `tag` from what `pair` returned."""
    for name, content in zip((f"model_epoch_{tag}", f"model_epoch_{tag}_optimizer_state"), states, strict=True):
        durable.write(folder / f"{name}.pth", partial(Dump, content))


def key(tensor: torch.Tensor) -> Key:
    """Return a key that two tensors share exactly when they are the same view of the same memory."""
    return tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def load(path: Path, model: nn.Module) -> None:
    """Load the weights in a file into `model` in place, on its own device."""
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))


def _plain(value: Any, memo: Memo) -> Any:
    """Return the same structure with tensors detached, on the CPU, in storage of their own. Tied ones stay tied."""
    if isinstance(value, torch.Tensor):
        place = key(value)
        # Empty tensors may share an address without being the same view.
        if place not in memo or value.numel() == 0:
            memo[place] = value.detach().to("cpu", copy=True)
        return memo[place]
    if isinstance(value, OrderedDict):
        plain = OrderedDict((name, _plain(part, memo)) for name, part in value.items())
        # The versions of the modules, which load_state_dict reads.
        plain.__dict__.update(value.__dict__)
        return plain
    if isinstance(value, dict):
        return {name: _plain(part, memo) for name, part in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_plain(part, memo) for part in value)
    return value
