"""A lock that says that a job's supervisor lives, to whoever can read the job's folder but not see the process.

A container's processes are not visible from another one, and those of one that has ended never will be. A lock on a
file is the kernel's own word: it is there as long as the process, whatever namespace that is in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

FILE = "supervisor.lock"


def announce(path: Path) -> int:
    """Hold the lock until this process ends; a descriptor nobody else inherits. -1 where files cannot be locked."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # an earlier one still holds it, and will end
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    return -1


def is_held(path: Path) -> bool:
    """Whether any process of this kernel holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
