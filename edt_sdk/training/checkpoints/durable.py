"""Write files atomically: under a temporary name, then fsync, rename, and fsync of the folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp\Z")


def write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Replace `path` atomically with what `fill` writes. Make its folder. An error leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates the file with mode 0600. Results are shared, so the finished file gets the mode of the umask.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync(path.parent)


def link(path: Path, source: Path) -> None:
    """Hard-link `path` to `source`, or copy the file where the file system has no links or is another one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Eight digits, so that `sweep` recognizes the name.
    temporary = path.with_name(f".{path.name}.{os.getpid():08d}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        with source.open("rb") as file:
            write(path, lambda target: shutil.copyfileobj(file, target))
        return
    os.replace(temporary, path)
    # rename() does nothing where both names are the same file already, so the temporary name may still be there.
    temporary.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Fsync a file, or a folder, so that renames and new names in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove temporary files of writers that died. Call it only when no process can be writing there."""
    if folder.is_dir():
        for path in folder.iterdir():
            if _TEMPORARY.match(path.name):
                path.unlink(missing_ok=True)


def _umask() -> int:
    # os.umask() can only be read by setting it. Another thread could create a file with the wrong mode in between.
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o077
