"""Keep blocks of the disk allocated behind the end of a file, so that the file can grow although the disk is full.

A file with spare blocks can neither be overtaken nor starved by other programs that write to the same disk, as a
reserve file that is given up would be. File systems without that (NFS before 4.2, ZFS) are left as they are.
"""

from __future__ import annotations

import ctypes
import os

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


def allocate(descriptor: int, size: int) -> bool:
    """Allocate the blocks of the first `size` bytes of a file. Its length stays. Return False when that fails.

    Python's own `posix_fallocate` would change the length.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.fallocate(descriptor, _KEEP_SIZE, ctypes.c_longlong(0), ctypes.c_longlong(size)) == 0)


def release(descriptor: int) -> None:
    """Free the blocks behind the end of a file that does not grow any more."""
    os.ftruncate(descriptor, os.fstat(descriptor).st_size)
