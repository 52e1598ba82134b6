"""Detect where this code runs: in a notebook kernel or a plain process. Both may have loaded IPython."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """Return True in a kernel, where widgets can be shown and stderr is red."""
    # Not imported: IPython takes long to import, and a process that has not loaded it is no kernel.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
