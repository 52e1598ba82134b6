"""End what programs of a job have left running: processes in sessions of their own, without a link, holding no lock.

Nothing but EDT_JOB in the environment that they inherited shows that they belong to a job. A process that was started
with an environment of its own is not found.
"""

from __future__ import annotations

import logging
import os
import signal
import time

from edt_sdk.schemas.wire.context import JOB_VARIABLE

log = logging.getLogger(__name__)

PATIENCE = 5.0


def end_processes(mark: bytes) -> int:
    """Kill every other process of this account with `mark` in its EDT_JOB, and return how many there were. Blocks."""
    found: set[int] = set()
    deadline = time.monotonic() + PATIENCE
    # A killed process may have been forking, and is seen until it has exited: repeat until none is found.
    while killed := {pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _end(pid, mark)}:
        found |= killed
        if time.monotonic() > deadline:
            log.warning("processes of the job do not end: %s", sorted(killed))
            break
        time.sleep(0.01)
    return len(found)


def _end(pid: int, mark: bytes) -> bool:
    if pid == os.getpid():
        return False
    try:
        # Opened before the check: a process that gets this pid in between is not signalled.
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _belongs(pid, mark):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _belongs(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()  # empty for a zombie
    except OSError:
        return False  # it has exited, or belongs to another account
    name = JOB_VARIABLE.encode() + b"="
    return any(entry.startswith(name) and mark in entry for entry in environ.split(b"\0"))
