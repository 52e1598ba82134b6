"""Kernels of the tests' own, which cannot lose a port to another test process, and leave no files behind.

Jupyter's client chooses five TCP ports and the kernel binds them a second later; with several test processes somebody
else may have been faster, and the kernel dies. Unix sockets have names that are nobody else's. A kernel whose test was
killed ends by itself: it looks every second whether its parent is still there.
"""

from __future__ import annotations

import itertools
import tempfile
from functools import cache

from traitlets.config import Config

_NUMBERS = itertools.count()


def on_unix_sockets() -> Config:
    """Configuration of a NotebookClient whose kernel has sockets of its own."""
    return Config({"KernelManager": {"transport": "ipc", "ip": f"{_folder().name}/{next(_NUMBERS)}"}})


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Goes with this process. A short name: all of a socket's may have 107 bytes."""
    return tempfile.TemporaryDirectory(prefix="edt-kernels-")
