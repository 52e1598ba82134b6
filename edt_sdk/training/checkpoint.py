"""The `.pth` files of a training: state dicts under `model/train/`, with WMLA's names.

`model_epoch_<N>.pth` and `model_epoch_<N>_optimizer_state.pth` after epoch N (from 1), `model_epoch_final…` at the end.
A file appears under its name only when all of it is on disk. Tensors are stored on the CPU and without the memory
around them, so that a file's content does not depend on device, worker or engine.
"""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import nn

FINAL = "final"


def save(folder: Path, tag: int | str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write both files of `tag` (an epoch from 1, or `FINAL`); the folder is created when missing."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / f"model_epoch_{tag}.pth", _plain(model.state_dict()))
    _write(folder / f"model_epoch_{tag}_optimizer_state.pth", _plain(optimizer.state_dict()))


def load_final(folder: Path, model: nn.Module) -> None:
    """Load the final weights into `model` in place, on whatever device it is."""
    state = torch.load(folder / f"model_epoch_{FINAL}.pth", map_location="cpu", weights_only=True)
    model.load_state_dict(state)


def _plain(value: Any, memo: dict[tuple[Any, ...], torch.Tensor] | None = None) -> Any:
    """The same structure with tensors detached, on the CPU, in storage of their own; tied ones stay tied."""
    memo = {} if memo is None else memo
    if isinstance(value, torch.Tensor):
        key = (value.device, value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if key not in memo or value.numel() == 0:
            memo[key] = value.detach().to("cpu", copy=True)
        return memo[key]
    if isinstance(value, OrderedDict):
        plain = OrderedDict((key, _plain(part, memo)) for key, part in value.items())
        # Versions of the modules; load_state_dict reads them.
        plain.__dict__.update(value.__dict__)
        return plain
    if isinstance(value, dict):
        return {key: _plain(part, memo) for key, part in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_plain(part, memo) for part in value)
    return value


def _write(path: Path, content: Any) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's 0600 is right while it is written; afterwards people share results as their umask says.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
