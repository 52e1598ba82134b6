"""Hold a lock that shows that a job's supervisor lives, to readers of the job's folder that cannot see the process.

A container's processes are not visible from another one, and the processes of an ended container never will be. A file
lock is held by the kernel exactly as long as the process exists, whatever its namespace.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

FILE = "supervisor.lock"


def announce(path: Path) -> int:
    """Hold the lock until this process ends. Return its descriptor, or -1 where files cannot be locked."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # an earlier supervisor still holds it, and will exit
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    return -1


def is_held(path: Path) -> bool:
    """Return whether any process of this kernel holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A shared probe: two readers at the same time must not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
