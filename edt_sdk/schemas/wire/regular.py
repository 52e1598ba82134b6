"""Open a file in a folder where a job's own code can put anything: a FIFO, a device, a link to a file of the server.

Opening a FIFO waits for a writer, for ever if there is none, and reading a device may never end. A link, also in place
of a folder on the way, leads to files that are not the job's. So every file that a job can make is opened here, also
where only our own programs write it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# A link, also as a folder, and a socket or a device without a driver.
_OTHERS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENODEV})


def open_regular(path: Path, *, within: Path | None = None) -> BinaryIO:
    """Open a regular file for reading, in binary. Never waits.

    Args:
        path: the file.
        within: a folder above it that the job's code cannot replace. No component of the path below it may be a link.
            Default: the file's own folder.

    Raises:
        FileNotFoundError: also when there is something that is no regular file, or a link on the way.
        OSError: as `open`.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        folder = _open_folder(path.parent, within or path.parent)
        try:
            descriptor = os.open(path.name, flags, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError as wrong:
        if wrong.errno in _OTHERS:
            raise FileNotFoundError(errno.ENOENT, "no regular file", str(path)) from None
        raise
    # Looked at through the descriptor, because the name may mean something else by now.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, *, within: Path | None = None) -> bytes:
    """Return all bytes of a regular file. Arguments and errors as of `open_regular`."""
    with open_regular(path, within=within) as file:
        return file.read()


def stat_regular(path: Path, *, within: Path | None = None) -> os.stat_result:
    """Return the status of a regular file. Arguments and errors as of `open_regular`."""
    with open_regular(path, within=within) as file:
        return os.fstat(file.fileno())


def is_regular(path: Path, *, within: Path | None = None) -> bool:
    """Return whether `open_regular` would open this. Arguments as of `open_regular`."""
    try:
        open_regular(path, within=within).close()
    except OSError:
        return False
    return True


def append_regular(path: Path) -> int:
    """Return a descriptor that appends to a regular file, which is made (0600) when there is none. Never waits.

    OSError as of `os.open`, and when something that is no regular file has the name.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        # Only now: with O_CREAT the kernel refuses a file of another account in a folder like /tmp, even to root
        # (sysctl fs.protected_regular).
        descriptor = os.open(path, flags | os.O_CREAT, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, "no regular file", str(path))
    return descriptor


def make_folder(path: Path, *, within: Path, owner: tuple[int, int] | None = None) -> None:
    """Make a folder with its parents, if it does not exist. NotADirectoryError for a link below `within`.

    What is made below `within` belongs to `owner`, a user and a group.
    """
    within.mkdir(parents=True, exist_ok=True)
    os.close(_open_folder(path, within, make=True, owner=owner))


def remove_file(path: Path, *, within: Path) -> None:
    """Remove a file, or what else has its name and is no folder.

    FileNotFoundError when there is none, NotADirectoryError for a link on the way below `within`. OSError as `unlink`.
    """
    folder = _open_folder(path.parent, within)
    try:
        os.unlink(path.name, dir_fd=folder)
    finally:
        os.close(folder)


def make_way(path: Path, *, within: Path) -> None:
    """Remove what is in the way of a file: a folder of its name, and a file or link in place of a folder above it."""
    for above in reversed(path.relative_to(within).parents):
        try:
            os.close(_open_folder(within / above, within))
        except NotADirectoryError:
            remove_file(within / above, within=within)
            return
        except FileNotFoundError:
            return
    folder = _open_folder(path.parent, within)
    try:
        if stat.S_ISDIR(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(path.name, dir_fd=folder)
    except FileNotFoundError:
        pass
    finally:
        os.close(folder)


def regular_files(folder: Path, pattern: str, *, within: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files of a folder whose paths match the glob pattern, each with its status.

    A file behind a link, or one that cannot be opened, is left out. `within` is as in `open_regular`.
    """
    try:
        os.close(_open_folder(folder, within))
    except OSError:
        return  # also for a link, which may lead to the root of the machine: to search that would take hours
    for path in folder.glob(pattern):
        try:
            yield path, stat_regular(path, within=within)
        except (FileNotFoundError, PermissionError):
            continue


def _open_folder(folder: Path, within: Path, *, make: bool = False, owner: tuple[int, int] | None = None) -> int:
    # One component after the other, each relative to the folder that is open: the check and the use cannot differ.
    # `openat2` would do it in one call, but Python does not offer it.
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(within, flags)
    for part in folder.relative_to(within).parts:
        try:
            if part == os.pardir:
                raise NotADirectoryError(errno.ENOTDIR, "leads out of its folder", str(folder))
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
                    if owner is not None:
                        os.chown(part, *owner, dir_fd=descriptor, follow_symlinks=False)
            inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor
