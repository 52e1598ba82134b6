"""Trouble that a store's database meets, made for real."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def no_room(beyond: int) -> Iterator[None]:
    """No file of this process can grow over `beyond` bytes, whatever tries."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (beyond, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[bool]:
    """A file system of `size` bytes in `folder`; False where we may not mount one."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    command = [mount or "", "-t", "tmpfs", "-o", f"size={size}", "edt-test", str(folder)]
    if not mount or not umount or subprocess.run(command, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run([umount, "--lazy", str(folder)], check=True)


def fill(place: Path) -> None:
    """Write to this file until the disk has no room for a single byte."""
    with contextlib.suppress(OSError), place.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"z" * size):
                    pass
