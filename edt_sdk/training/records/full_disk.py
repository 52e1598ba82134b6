"""Wait for room on a full disk: a training stands still then, and loses nothing."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")

PAUSE = 1.0
_LINES = 1 << 16
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def when_there_is_room(write: Callable[[], T], patient: Callable[[], bool]) -> T:
    """Run `write` again and again while the disk has no room for it. Return its result.

    `write` must leave nothing behind when it fails. `patient` is called before each wait. Where it returns False, the
    error passes through, as every other error does.
    """
    begun: float | None = None
    while True:
        try:
            done = write()
        except OSError as wrong:
            if wrong.errno not in _NO_ROOM or not patient():
                raise
            if begun is None:
                begun = time.monotonic()
                log.warning("The disk is full (%s): the training waits for room.", wrong)
        else:
            if begun is not None:
                log.warning("There is room on the disk again, after %.0f s.", time.monotonic() - begun)
            return done
        time.sleep(PAUSE)


def wait_for_lines(folder: Path) -> None:
    """Return once the disk of `folder` has room for some lines of a log.

    For writes that cannot be repeated, such as those of a user's logger. Another program may still take the room.
    """
    while True:
        disk = os.statvfs(folder)
        blocks = disk.f_bavail if os.geteuid() else disk.f_bfree  # some blocks are kept for root
        # Some file systems do not know their size.
        if not disk.f_blocks or blocks * disk.f_frsize >= _LINES:
            return
        time.sleep(PAUSE)
