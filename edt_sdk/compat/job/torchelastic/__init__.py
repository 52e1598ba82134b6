"""The package that PyTorch Elastic was before torch 1.9 included it: torch's modules under their old names.

`torchelastic.rendezvous` is `torch.distributed.elastic.rendezvous`, and so on for every module of torch there. The
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
    """Finds torch's modules under their old names. A module exists once, under both names."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module with that old name, None when torch has none."""
        prefix, _, rest = fullname.partition(".")
        if prefix != __name__ or not rest or fullname in _OWN:
            return None
        try:
            found = importlib.util.find_spec(f"{_NEW}.{rest}")
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        return ModuleSpec(fullname, self, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return torch's own module."""
        module = importlib.import_module(_NEW + spec.name.removeprefix(__name__))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module was executed under its own name."""
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name)


# First in the list: torch's folders would otherwise give a second copy of a module.
sys.meta_path.insert(0, _Renamed())
