"""Starting a process of ours that is to outlive whoever starts it: the one way that all of them begin.

It is its own session, has no terminal, holds none of the starter's descriptors but those it is given, appends what it
says to a file of its own, and gets only the part of the environment that is fit for that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from edt_server.system.inherited import inherited


def start_detached(
    module: str, arguments: Sequence[str], *, folder: Path, log: Path, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start `python -m module arguments…` with this interpreter; whoever calls reaps it.

    Args:
        module: of this package.
        arguments: its own.
        folder: where it runs.
        log: file that stdout and stderr are appended to, 0600 where it is new.
        stdin: a descriptor, nothing by default.

    Raises:
        OSError: no folder, no room, or no process to be had.
    """
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            # -P: what lies in the working directory must not be imported.
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=stdin,
            stdout=said,
            stderr=said,
            cwd=folder,
            env=inherited(os.environ),
            close_fds=True,
            start_new_session=True,
        )
    finally:
        os.close(said)
