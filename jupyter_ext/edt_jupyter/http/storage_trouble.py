"""A disk that is full, or a folder that cannot be written, as an answer that says so and what to do. Pure."""

from __future__ import annotations

import errno

from edt_sdk.schemas.errors import StorageFailed

# What the system says when nothing can be written, whatever is sent.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WAY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ESTALE})


def storage_failed(error: OSError) -> StorageFailed | None:
    """What to tell of an error of the file system; None of any other.

    The path is left to the server's log: who asks need not know where the server keeps its files.
    """
    why = error.strerror or str(error)
    if error.errno in _NO_ROOM:
        return StorageFailed(
            f"The server has no room left where it keeps its jobs ({why}); nothing of this request was kept.",
            hint="Delete jobs or data sets that nobody needs, or ask whoever runs the server to make room.",
        )
    if error.errno in _NO_WAY:
        return StorageFailed(
            f"The server cannot read or write where it keeps its jobs ({why}); nothing of this request was kept.",
            hint="Whoever runs the server finds the path in its log, and what EdtApp.data_dir is.",
        )
    return None
