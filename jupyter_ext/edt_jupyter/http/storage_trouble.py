"""Turn a full disk, or a folder that cannot be written, into an error with advice. Pure."""

from __future__ import annotations

import errno

from edt_sdk.schemas.errors import StorageFailed

# The errors of the system when nothing at all can be written.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WAY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.ESTALE})


def storage_failed(error: OSError) -> StorageFailed | None:
    """Return the error to show for an error of the file system, None for any other.

    The path appears only in the server's log: users need not know where the server keeps its files.
    """
    why = error.strerror or str(error)
    if error.errno in _NO_ROOM:
        return StorageFailed(
            f"The server has no room left where it keeps its jobs ({why}); nothing of this request was kept.",
            hint="Delete jobs or data sets that are no longer needed, or ask the server's administrator to make room.",
        )
    if error.errno in _NO_WAY:
        return StorageFailed(
            f"The server cannot read or write where it keeps its jobs ({why}); nothing of this request was kept.",
            hint="The server's administrator finds the path in its log, and EdtApp.data_dir in its settings.",
        )
    return None
