"""Write and load the `.pth` files of a training: state dicts under `model/train/`, with WMLA's names.

The names are `model_epoch_<N>.pth` and `model_epoch_<N>_optimizer_state.pth` after epoch N (from 1), and
`model_epoch_final…` at the end. Each file is written atomically. Tensors are stored on the CPU without the memory
around them, so a file's content does not depend on device, worker or engine.

A third file of the end, `model_epoch_final_schedule_state.pth`, exists where a training continues with more than these
two: a learning-rate scheduler, or optimizers inside the optimizer. In place of the file of the optimizer's state, a
sharded model has the folder `model_epoch_final_sharded`, with model and optimizers in torch's distributed format.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edt_sdk.training.checkpoints import durable
from edt_sdk.training.checkpoints.dump import Dump
from edt_sdk.training.state.pickling import all_optimizers
from edt_sdk.training.state.state import put_state_dict

FINAL = "final"
MODEL = f"model_epoch_{FINAL}.pth"
OPTIMIZER = f"model_epoch_{FINAL}_optimizer_state.pth"
PARTS = f"model_epoch_{FINAL}_sharded"
SCHEDULE = f"model_epoch_{FINAL}_schedule_state.pth"
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


def save_weights(path: Path, model: nn.Module) -> None:
    """Write the state dict of a model to a file."""
    write_weights(path, _plain(model.state_dict(), {}))


def write_weights(path: Path, weights: Any) -> None:
    """Write a state dict to a file. Its tensors are on the CPU, in storage of their own."""
    durable.write(path, partial(Dump, weights))


def save_schedule(folder: Path, optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
    """Write the third file of the end, or remove that of an earlier training where there is nothing to write."""
    path = folder / SCHEDULE
    inner = [each.state_dict() for each in all_optimizers(optimizer)[1:]]
    if scheduler is None and not inner:
        path.unlink(missing_ok=True)
        return
    content = {"scheduler": None if scheduler is None else dict(scheduler.state_dict()), "inner": inner}
    durable.write(path, partial(Dump, _plain(content, {})))


def load_optimizer(folder: Path, optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
    """Load the state of an optimizer and of its scheduler at the end of a training, in place.

    What cannot be loaded stays as it was, and a line says so: the weights, which are more, are there all the same.
    """
    try:
        saved = _load(folder / OPTIMIZER)
        rest = _load(folder / SCHEDULE) if (folder / SCHEDULE).exists() else {"scheduler": None, "inner": []}
        for inner, state in zip(all_optimizers(optimizer)[1:], rest["inner"], strict=True):
            put_state_dict(inner, state)
        put_state_dict(optimizer, saved)
        if scheduler is not None and rest["scheduler"] is not None:
            scheduler.load_state_dict(rest["scheduler"])
    except Exception as error:  # a load_state_dict of the user's own may raise anything
        print(
            "edt: the optimizer has not got its final state, and a next train() begins with the one that it has: "
            f"{type(error).__name__}: {error}",
            file=sys.stderr,
            flush=True,
        )


def key(tensor: torch.Tensor) -> Key:
    """Return a key that two tensors share exactly when they are the same view of the same memory."""
    return tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def load(path: Path, model: nn.Module) -> None:
    """Load the weights in a file into `model` in place, on its own device."""
    model.load_state_dict(_load(path))


def _load(path: Path) -> Any:
    # weights_only: a pickle from another machine could run code here.
    return torch.load(path, map_location="cpu", weights_only=True)


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
