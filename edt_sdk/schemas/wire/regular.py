"""Open a file in a folder where a job's own code can put anything: a FIFO, a device, a link to a file of the server.

Opening a FIFO waits for a writer, for ever if there is none, and reading a device may never end. So every file that a
job can make is opened here, also where only our own programs write it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, in binary. Never waits.

    Raises:
        FileNotFoundError: also when there is something that is no regular file, or a link.
        OSError: as `open`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as wrong:
        # A link, and a socket or a device without a driver.
        if wrong.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise FileNotFoundError(errno.ENOENT, "no regular file", str(path)) from None
        raise
    # Looked at through the descriptor, because the name may mean something else by now.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """Return all bytes of a regular file. Raises as `open_regular`."""
    with open_regular(path) as file:
        return file.read()
