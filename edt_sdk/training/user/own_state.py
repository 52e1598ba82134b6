"""Take fingerprints of the state that a user's objects keep outside of the model's parameters and buffers.

Two fingerprints tell what changed in between, by the user's names for it. They are taken only after the self-check has
found a difference (`edt_sdk.training.update.self_check`), so they may take a second.
"""

from __future__ import annotations

import functools
import random
import sys
import sysconfig
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edt_sdk.training.state.state import own_tensors
from edt_sdk.training.user.culprit import parts_of

# Enough for any model, and the end of the search in a data set that is a list of a million numbers.
_MOST = 50_000
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LIBRARIES = (
    *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(str(Path(module.__path__[0])) for module in (torch, np)),
    str(Path(__file__).parents[2]),
)
_LOOKED_INTO = (Mapping, list, tuple, set, frozenset, functools.partial, FunctionType, MethodType, ModuleType, type)
_TABLES = frozenset(vars(nn.Module()))


class OwnState:
    """Knows the user's objects of a training by the names the user gave them, such as "loss_function"."""

    def __init__(self, model: nn.Module, **others: object) -> None:
        self._model = model
        self._roots = {"model": model, **{name: value for name, value in others.items() if value is not None}}

    def fingerprints(self) -> Mapping[str, object]:
        """Return a fingerprint of each part by its name. A tensor's is its place in memory and its count of writes."""
        engines = {tensor.data_ptr() for _, tensor in own_tensors(self._model) if tensor.numel()}
        found: dict[str, list[object]] = {}
        visited: set[int] = set()
        # Name, the name by which changes are reported if that is another one, and the part.
        waiting: deque[tuple[str, str, object]] = deque((name, "", value) for name, value in self._roots.items())
        while waiting and len(visited) < _MOST:
            name, known_as, value = waiting.popleft()
            mark = _mark(value)
            if mark is not None:
                if not (isinstance(value, Tensor) and value.data_ptr() in engines):
                    found.setdefault(known_as or name, []).append(mark)
                continue
            if id(value) in visited or _of_a_library(value):
                continue
            visited.add(id(value))
            for part_name, part in parts_of(name, value):
                if isinstance(value, nn.Module) and part_name.removeprefix(f"{name}.") in _TABLES:
                    continue
                # A module within a module and a function are passed through. What else holds state has a name for all
                # that is in it, so that not each weight of a discriminator is listed.
                through = isinstance(part, FunctionType | MethodType | type) or (
                    isinstance(part, nn.Module) and isinstance(value, nn.Module)
                )
                waiting.append((part_name, known_as or ("" if through else part_name), part))
        return {name: tuple(marks) for name, marks in found.items()}


def _mark(value: Any) -> object | None:
    """Return what tells two states of a part apart, None for a part to look into."""
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, Tensor):
        return value.data_ptr(), value._version
    if isinstance(value, np.ndarray):
        return value.shape, hash(value.tobytes()) if value.dtype != object else None
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().numpy())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    if isinstance(value, random.Random):
        return hash(value.getstate())
    if isinstance(value, _LOOKED_INTO) or hasattr(value, "__dict__") or hasattr(type(value), "__slots__"):
        return None
    # A type of C, such as itertools.count, shows its state in its words.
    return repr(value)


def _of_a_library(value: object) -> bool:
    """Return whether a part is a module, or a class or function of a library, none of which keeps a user's state."""
    if isinstance(value, ModuleType):
        return True
    if isinstance(value, type):
        file = getattr(sys.modules.get(value.__module__), "__file__", None)
        return value.__module__ == "builtins" or (file is not None and file.startswith(_LIBRARIES))
    return isinstance(value, FunctionType) and value.__code__.co_filename.startswith(_LIBRARIES)
