"""Make files and folders that only this account may read: keys, orders, addresses.

A file appears whole or not at all: it is written under another name and renamed.
"""

from __future__ import annotations

import os
from pathlib import Path


def make_private_dir(path: Path) -> None:
    """Make a folder (0700) with its parents. An existing folder is made 0700."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


def keep_private(path: Path, data: bytes) -> None:
    """Have `data` in `path`, as `write_private` does. What is there already needs no room on the disk."""
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    write_private(path, data)


def write_private(path: Path, data: bytes) -> None:
    """Write `data` to `path` (0600), atomically replacing what was there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            # Before the rename: after a crash of the machine the name must not lead to an empty file.
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
