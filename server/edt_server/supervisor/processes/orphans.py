"""Adopt descendants that lost their parents: loader processes of a killed worker, programs that a script left running.

The supervisor becomes their parent (PR_SET_CHILD_SUBREAPER), so that they can neither outlive the job nor stay as
zombies where init does not reap. This ends with the supervisor, so it does not cover what workers do without one.
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
    """Become the parent of every descendant that outlives its own parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def orphans(known: Collection[int], adopter: int | None = None) -> list[int]:
    """Return the pids of the adopter's children that are not in `known`. Default: this process adopts them."""
    adopter = adopter or os.getpid()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) in known:
            continue
        try:
            parent = parent_of(int(entry.name))
        except ProcessLookupError:
            continue  # exited in the meantime
        if parent == adopter:
            found.append(int(entry.name))
    return found


def reap_orphans(known: Collection[int], *, kill: bool) -> bool:
    """Reap the orphans that have exited, with `kill` after a SIGKILL to all. Return True when some are left."""
    left = False
    for pid in orphans(known):
        if kill:
            os.kill(pid, signal.SIGKILL)  # an unreaped child: its pid cannot be reused
        # By pid and not `waitpid(-1)`: that would also reap a child with an exit code that `Children` still has to
        # read.
        left |= os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is None
    return left


def kill_orphans_of(adopter: int) -> bool:
    """Kill the children of the first process of a sandbox, which the kernel reaps. Return True when some are left."""
    left = False
    for pid in orphans((), adopter):
        try:
            # Opened before the check: a process that gets this pid in between is not signalled.
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if parent_of(pid) == adopter:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                left = True
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)
    return left
