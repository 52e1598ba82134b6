"""Kernels of the tests' own, which cannot lose a port to another test process.

Jupyter's client chooses five TCP ports and the kernel binds them a second later; with several test processes somebody
else may have been faster, and the kernel dies. Unix sockets have names that are nobody else's.
"""

from __future__ import annotations

import tempfile

from traitlets.config import Config


def on_unix_sockets() -> Config:
    """Configuration of a NotebookClient whose kernel listens on sockets in a folder of its own (short: 107 bytes)."""
    folder = tempfile.mkdtemp(prefix="edt-kernel-")
    return Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/channel"}})
