"""Find the part of an object that cannot be pickled, and name it as the user would write it.

Pickle reports "cannot pickle '_thread.lock' object" without a location. The search pickles the parts of a failing
object separately and descends into the first part that fails: attributes, elements, variables captured by functions,
globals they use. It runs only after a failure, so its cost does not matter.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from edt_sdk.training.state.pickling import dumps

_DEPTH = 30


def find_culprit(name: str, value: object) -> tuple[str, object] | None:
    """Return the path and the innermost part that does not pickle, or None when everything pickles.

    The path starts with `name`, the user's name for `value`, such as "model".
    """
    if _pickles(value):
        return None
    # Objects may refer to each other in a circle.
    seen: set[int] = set()
    for _ in range(_DEPTH):
        seen.add(id(value))
        for part_name, part in parts_of(name, value):
            if id(part) not in seen and not _pickles(part):
                name, value = part_name, part
                break
        else:
            break
    return name, value


def _pickles(value: object) -> bool:
    try:
        dumps(value)
    except Exception:  # a __reduce__ of the user's may raise anything, and that is the answer
        return False
    return True


def parts_of(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of an object with their paths as the user would write them."""
    if isinstance(value, MethodType):
        yield f"{name}.__self__", value.__self__
        yield name, value.__func__
    elif isinstance(value, functools.partial):
        yield f"{name}.func", value.func
        yield from ((f"{name}.args[{i}]", part) for i, part in enumerate(value.args))
        yield from ((f"{name}.keywords[{key!r}]", part) for key, part in value.keywords.items())
    elif isinstance(value, FunctionType):
        yield from _parts_of_function(name, value)
    elif isinstance(value, ModuleType):
        yield from ((f"{name}.{key}", part) for key, part in vars(value).items() if not key.startswith("__"))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield f"{name} (a key)", key
            yield f"{name}[{key!r}]", part
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{name}[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, type):
        yield from (
            (f"{name}.{key}", part) for key, part in vars(value).items() if key not in ("__dict__", "__weakref__")
        )
    else:
        yield from _parts_of_instance(name, value)


def _parts_of_function(name: str, function: FunctionType) -> Iterator[tuple[str, object]]:
    code = function.__code__
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{variable} (used by {name})", cell.cell_contents
        except ValueError:  # an empty cell: the variable is not set yet
            continue
    for variable in code.co_names:
        if variable in function.__globals__:
            yield f"{variable} (used by {name})", function.__globals__[variable]
    for i, default in enumerate(function.__defaults__ or ()):
        yield f"{name} (default {i})", default


def _parts_of_instance(name: str, value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, nn.Module):
        # Sub-modules first, under the names the user gave them.
        for table in ("_modules", "_parameters", "_buffers"):
            yield from ((f"{name}.{key}", part) for key, part in vars(value).get(table, {}).items())
    yield from ((f"{name}.{key}", part) for key, part in getattr(value, "__dict__", {}).items())
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, slot) and slot not in ("__dict__", "__weakref__"):
                yield f"{name}.{slot}", getattr(value, slot)
    yield f"{type(value).__name__} (the class of {name})", type(value)
