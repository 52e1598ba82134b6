"""Tell the user's own modules from installed ones, by their files."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_LIBRARIES = (
    *{Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")},
    Path(__file__).resolve().parents[2],
)
_PREFIXES = tuple(f"{path}{os.sep}" for path in _LIBRARIES)


def own_modules(roots: Sequence[Path] | None = None) -> list[ModuleType]:
    """Return the loaded modules that are not installed, below one of these folders or, with None, anywhere.

    `__main__` is not among them.
    """
    resolved = None if roots is None else [root.resolve() for root in roots]
    found = []
    # A copy of the list, because resolving a lazy module may import others.
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if not isinstance(module, ModuleType) or not isinstance(origin, str) or not os.path.isabs(origin):
            continue
        # cloudpickle looks modules up by their own name, so an alias in sys.modules cannot be registered.
        if module.__name__ != name or name == "__main__":
            continue
        # Nearly all modules are installed. To follow the links in all their paths takes a tenth of a second.
        if origin.startswith(_PREFIXES) or not _INSTALLED.isdisjoint(origin.split(os.sep)):
            continue
        path = Path(origin).resolve()
        if _INSTALLED.intersection(path.parts) or any(path.is_relative_to(library) for library in _LIBRARIES):
            continue
        if resolved is None or any(path.is_relative_to(root) for root in resolved):
            found.append(module)
    return found
