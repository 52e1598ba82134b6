"""Decide which modules travel inside a pickle instead of being imported by the receiver.

Modules below the submitted code, the kernel's working directory, or a folder that the script put on `sys.path` travel
by value. The worker then needs no copy of the folder, and globals that the script set before `train()` arrive with the
module. Installed packages and this package never travel, even if an environment lies inside such a folder.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import cloudpickle  # type: ignore[import-untyped]

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_LIBRARIES = tuple(
    {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OURS = Path(__file__).resolve().parents[2]


@contextmanager
def by_value(roots: Sequence[Path]) -> Iterator[None]:
    """Make cloudpickle store functions and classes of loaded modules below `roots` by value inside the block."""
    before = cloudpickle.list_registry_pickle_by_value()
    registered: list[ModuleType] = []
    try:
        for module in modules_below(roots):
            if module.__name__ not in before:
                cloudpickle.register_pickle_by_value(module)
                registered.append(module)
        yield
    finally:
        for module in registered:
            # Undone afterwards: the registry is global, and the user's own pickles must not change.
            cloudpickle.unregister_pickle_by_value(module)


def modules_below(roots: Sequence[Path]) -> list[ModuleType]:
    """Return the loaded modules with a file below one of these folders, except `__main__`, which is always by value."""
    resolved = [root.resolve() for root in roots]
    found = []
    # A copy of the list, because resolving a lazy module may import others.
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if not isinstance(module, ModuleType) or not isinstance(origin, str) or not os.path.isabs(origin):
            continue
        # cloudpickle looks modules up by their own name, so an alias in sys.modules cannot be registered.
        if module.__name__ != name or name == "__main__":
            continue
        path = Path(origin).resolve()
        if _INSTALLED.intersection(path.parts) or any(path.is_relative_to(p) for p in (*_LIBRARIES, _OURS)):
            continue
        if any(path.is_relative_to(root) for root in resolved):
            found.append(module)
    return found
