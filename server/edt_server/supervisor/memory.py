"""The job's folder in memory: what its workers keep there outlives them and their supervisor, but not the job."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from pathlib import Path

log = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")


def memory_folder(job_id: str, root: Path = SHARED_MEMORY) -> str:
    """Make the folder, or find that of an earlier attempt; "" where memory cannot be had, or the name is taken."""
    if not (_is_tmpfs(root) and os.access(root, os.W_OK | os.X_OK)):
        return ""
    folder = root / f"edt-{os.getuid()}-{job_id}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Others may write beside it: a link or a folder of theirs is not to be trusted.
        found = folder.lstat()
    except OSError as wrong:
        log.warning("no folder in memory: %s", wrong)
        return ""
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        log.warning("%s is not a private folder of this account: it is not used", folder)
        return ""
    return str(folder)


def remove_memory_folder(folder: str) -> None:
    """The job is over."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _is_tmpfs(root: Path) -> bool:
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(fields[1] == str(root) and fields[2] == "tmpfs" for fields in map(str.split, mounts))
