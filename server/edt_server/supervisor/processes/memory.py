"""Keep the job's folder in memory: what workers store there outlives them and their supervisor, but not the job.

A supervisor holds a lock in the folder until it ends, for whatever reason. A job that is never resumed, for example
because its server was killed and its files removed, leaves its folder behind. The next supervisor of this account marks
such a folder, and one that finds it still unused an hour later removes it. Until then another attempt may use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import stat
import time
from pathlib import Path

log = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")
UNUSED_FOR = 3600.0
_LOCK = "alive"
_UNUSED = "unused"


def memory_folder(job_id: str, root: Path = SHARED_MEMORY, *, host: str = "") -> str:
    """Make the folder, or find the folder of an earlier attempt. "" where there is no tmpfs, or the name is taken.

    A lock is held on it until this process ends. `host` is the `host_mark` of a named host of this machine: named hosts
    stand for separate machines, so each keeps its own folder and loses it alone.
    """
    if not (_is_tmpfs(root) and os.access(root, os.W_OK | os.X_OK)):
        return ""
    folder = root / f"{_prefix()}{job_id}{host}"
    try:
        _hold(folder)
    except OSError as wrong:
        log.warning("no folder in memory: %s", wrong)
        return ""
    if not _is_private(folder):
        log.warning("%s is not a private folder of this account: it is not used", folder)
        return ""
    return str(folder)


def sweep(root: Path = SHARED_MEMORY, unused_for: float = UNUSED_FOR) -> list[Path]:
    """Remove folders of this account that no supervisor has used for so many seconds, and return the removed ones.

    A folder without a lock was not made here, and is left alone.
    """
    removed = []
    for folder in root.glob(f"{_prefix()}*") if _is_tmpfs(root) else ():
        try:
            if _is_private(folder) and _is_unused(folder, unused_for):
                removed.append(folder)
        except OSError as wrong:  # usually removed in the meantime
            log.debug("%s was not looked at: %s", folder, wrong)
    return removed


def host_mark(host: str, runtime_dir: Path) -> str:
    """Return the suffix of a named host's folders, "" for the machine. It depends on the server's runtime folder."""
    return f"@{host}.{hashlib.sha256(os.fsencode(runtime_dir)).hexdigest()[:8]}" if host else ""


def forget_host(host: str, runtime_dir: Path, root: Path = SHARED_MEMORY) -> None:
    """Remove all that a lost or restarted host had in memory. Arguments as of `host_mark`."""
    for folder in root.glob(f"{_prefix()}*{host_mark(host, runtime_dir)}"):
        if _is_private(folder):
            shutil.rmtree(folder, ignore_errors=True)


def remove_memory_folder(folder: str) -> None:
    """Remove the folder of a job that is over."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _prefix() -> str:
    return f"edt-{os.getuid()}-"


def _hold(folder: Path) -> None:
    """Make the folder if it does not exist, and hold its lock until this process ends."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder):
            return
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            continue
        # Shared: the supervisor before may still be waiting for its processes to exit.
        fcntl.flock(lock, fcntl.LOCK_SH)
        # Another supervisor may have removed the file between open and lock. A lock on a removed file protects nothing.
        if os.fstat(lock).st_nlink:
            (folder / _UNUSED).unlink(missing_ok=True)
            return  # never closed: the lock ends with the process
        os.close(lock)  # the folder was removed at this moment


def _is_unused(folder: Path, unused_for: float) -> bool:
    """Return whether the folder was unused for so long, and is removed now. Otherwise mark it for the next sweep."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mark = folder / _UNUSED
        try:
            since = mark.stat().st_mtime
        except FileNotFoundError:
            mark.touch(mode=0o600)
            return False
        # A mark of the future is from before the clock was set back, and would otherwise keep the folder for that long.
        if abs(time.time() - since) < unused_for:
            return False
        log.info("%s was left behind: removed", folder)
        # The lock goes last but for the folder: a process that waits for it then sees that it is gone.
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():  # that of an account, see `sandbox`
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()
        (folder / _LOCK).unlink()
        folder.rmdir()
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)


def _is_private(folder: Path) -> bool:
    # Others may write to /dev/shm too: a link or a folder of theirs is not to be trusted.
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700


def _is_tmpfs(root: Path) -> bool:
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(fields[1] == str(root) and fields[2] == "tmpfs" for fields in map(str.split, mounts))
