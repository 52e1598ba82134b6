"""Start a process that outlives its starter: the one way to start supervisors, spares and agents.

It has its own session and no terminal, holds none of the starter's descriptors except those it is given, appends its
output to a file of its own, and gets only the part of the environment that it may see.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Tokens and addresses of the server and the Hub, and the variables that mark a process of theirs.
_SERVER_PREFIXES = ("JPY_", "JUPYTERHUB_", "EDT_")
_SERVER_NAMES = frozenset({"JUPYTER_TOKEN", "JUPYTER_PASSWORD", "CONFIGPROXY_AUTH_TOKEN"})


def start_detached(
    module: str, arguments: Sequence[str], *, folder: Path, log: Path, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start `python -m module arguments…` with this interpreter in `folder`. The caller reaps it.

    `log` is the file that stdout and stderr are appended to, 0600 where it is new.
    """
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            # -P: modules in the working directory must not be imported.
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


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the server's environment without its tokens: a job has its owner's rights only."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(_SERVER_PREFIXES) and name not in _SERVER_NAMES
    }
