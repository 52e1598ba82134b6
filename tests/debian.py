"""Install what tests need from Debian where that may be done: by root, on a machine with apt-get."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

# Not in TMPDIR, which each process of a test run has for itself.
_LOCK = Path("/var/lock/edt-tests-apt")
_T = TypeVar("_T")


class Missing(pytest.skip.Exception):
    """This machine lacks something, and it cannot be installed. A test that does not catch it is skipped."""


def found(look: Callable[[], _T | None], *packages: str) -> _T:
    """Return what `look` finds, at the latest after these packages were installed. Raises Missing."""
    if (there := look()) is not None:
        return there
    wanted, why = " ".join(packages), ""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        # The processes of a test run take turns, because apt-get does not wait for another one.
        with _LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (there := look()) is None:
                command = f"apt-get update -qq && apt-get install -y -qq --no-install-recommends {wanted}"
                environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
                ended = subprocess.run(
                    command, shell=True, capture_output=True, check=False, env=environment, text=True
                )
                why = "".join(ended.stderr.strip().splitlines()[-1:])
                there = look()
    if there is None:
        raise Missing(f"This needs {wanted}: apt-get install {wanted} (as root). {why}".strip())
    return there


def program(*names: str) -> Callable[[], str | None]:
    """Return what looks for a program under several names."""
    return lambda: next(filter(None, map(shutil.which, names)), None)
