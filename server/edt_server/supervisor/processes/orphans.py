"""Descendants that lost their parents: loader processes of a killed worker, what a user's script left running.

The supervisor is made their new parent (PR_SET_CHILD_SUBREAPER), so that they can neither outlive the job nor stay as
zombies where nobody else reaps. It stops being that with its own death: what adopts workers later is another matter.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Collection
from pathlib import Path

from edt_server.system.processes import parent_of

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def orphans(known: Collection[int]) -> list[int]:
    """Pids of this process's children that are not in `known`."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) in known:
            continue
        try:
            parent = parent_of(int(entry.name))
        except ProcessLookupError:
            continue  # ended while we looked
        if parent == os.getpid():
            found.append(int(entry.name))
    return found


def reap_orphans(known: Collection[int], *, kill: bool) -> bool:
    """Reap those that have ended, with `kill` after a SIGKILL to all; True when some are left."""
    left = False
    for pid in orphans(known):
        if kill:
            os.kill(pid, signal.SIGKILL)  # our own unreaped child: the number is still its
        left |= os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None
    return left
