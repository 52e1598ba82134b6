"""End processes that programs of an earlier attempt left running: they carry the job's mark and hold no lock.

A plain job's own processes are killed with their supervisor. What they started survives that, and does not hold the
lock of its parents (`predecessors`): it is found by the environment that it inherited.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

from edt_sdk.schemas.wire.context import JOB_VARIABLE
from edt_server.system.processes import identify, send_signal

log = logging.getLogger(__name__)

PATIENCE = 5.0


def end_leftovers(job_id: str) -> int:
    """Kill every other process of this account that belongs to the job, and return how many there were. Blocks."""
    found: set[int] = set()
    deadline = time.monotonic() + PATIENCE
    # A killed process may have been forking, and is seen until it has exited: repeat until none is found.
    while killed := {int(name) for name in os.listdir("/proc") if name.isdecimal() and _kill(int(name), job_id)}:
        found |= killed
        if time.monotonic() > deadline:
            log.warning("processes of an earlier attempt do not end: %s", sorted(killed))
            break
        time.sleep(0.01)
    return len(found)


def _kill(pid: int, job_id: str) -> bool:
    try:
        # Identified before the check: a process that gets this pid in between is not signalled.
        identity = identify(pid)
    except ProcessLookupError:
        return False
    return pid != os.getpid() and _belongs(pid, job_id) and send_signal(identity, signal.SIGKILL)


def _belongs(pid: int, job_id: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()  # empty for a zombie
    except OSError:
        return False  # it has exited, or belongs to another account
    mark = f'"job_id":"{job_id}"'.encode()
    return any(entry.startswith(JOB_VARIABLE.encode() + b"=") and mark in entry for entry in environ.split(b"\0"))
