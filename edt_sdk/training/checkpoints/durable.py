"""Files that exist whole or not at all: written beside, forced to disk, then renamed, then the folder forced too."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp\Z")


def write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Make `path` what `fill` writes; its folder is created when missing. An error leaves the old file alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's 0600 is right while it is written; afterwards people share results as their umask says.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def link(path: Path, source: Path) -> None:
    """Make `path` another name of `source`, or a copy where the file systems differ or know no links."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid():08d}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        with source.open("rb") as file:
            write(path, lambda target: _copy(file, target))
        return
    os.replace(temporary, path)
    # Of two names of one file, rename removes none.
    temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force a folder's list of names to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove what writers that died left behind. Only when nobody can be writing there."""
    if folder.is_dir():
        for path in folder.iterdir():
            if _TEMPORARY.match(path.name):
                path.unlink(missing_ok=True)


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    while piece := source.read(1 << 20):
        target.write(piece)


def _umask() -> int:
    # os.umask can only be read by setting it, which a thread must not do beside others that create files.
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o077
