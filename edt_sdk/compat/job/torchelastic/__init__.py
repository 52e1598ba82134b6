"""Provide the package of PyTorch Elastic before torch 1.9 included it: its modules under their old names.

`torchelastic.rendezvous` is `torch.distributed.elastic.rendezvous`, likewise for every module that torch still has. The
program `torchelastic.distributed.launch` is torchrun.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NEW = "torch.distributed.elastic"
_OWN = frozenset({f"{__name__}.distributed", f"{__name__}.distributed.launch"})


class _Renamed(MetaPathFinder, Loader):
    """Finds torch's modules under their old names. A module is loaded once under both names."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec for an old name, None when torch has no such module."""
        prefix, _, rest = fullname.partition(".")
        if prefix != __name__ or not rest or fullname in _OWN:
            return None
        try:
            found = importlib.util.find_spec(f"{_NEW}.{rest}")
        # find_spec imports the parent first, and raises where torch has no such package.
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        return ModuleSpec(fullname, self, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return torch's own module."""
        module = importlib.import_module(_NEW + spec.name.removeprefix(__name__))
        # The import system replaces `__spec__` on whatever this returns, here on a module that torch shares.
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but restore the spec: the module was executed under its own name and keeps it."""
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name)


# Inserted first: the path finder would otherwise load files in torch's folders a second time.
sys.meta_path.insert(0, _Renamed())
