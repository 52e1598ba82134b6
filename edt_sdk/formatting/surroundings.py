"""Where this code runs: in the kernel of a notebook, or in a plain process, which may have loaded its modules too."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """True in a kernel, where widgets can be shown and stderr is red."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
