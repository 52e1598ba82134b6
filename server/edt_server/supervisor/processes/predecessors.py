"""Wait for the processes of an earlier attempt: no process of this attempt starts before they are gone.

All processes of an attempt hold one lock: the supervisor takes it, drivers and workers inherit its descriptor, and the
kernel frees it with the last of them. Workers that lost their supervisor write a checkpoint and exit by themselves. A
worker that is stopped, or does not come to an end, is killed. A list of pids in a file would not do: pids are reused,
and a supervisor that dies while it forks would leave a process that is in no list.

A plain job's own processes are killed with their supervisor, and their zygote ends what these have started
(`edt_sdk.training.zygote`). What is left because the zygote was killed too does not hold the lock, and `end_leftovers`
ends it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from edt_sdk.schemas.wire.context import end_processes
from edt_server.system.processes import identify, send_signal, stat_fields

log = logging.getLogger(__name__)

LOCK = "alive.lock"
STOPPED_PATIENCE = 5.0
POLL_INTERVAL = 0.05
STOPPED_STATES = frozenset({"T", "t"})


class Overdue:
    """Decides which of the processes have had enough time: `patience` seconds for a running one. Pure.

    A stopped process gets 5 s from when that was first seen. Times are in monotonic seconds.
    """

    def __init__(self, patience: float, now: float) -> None:
        self._deadline = now + patience
        self._stopped: dict[int, float] = {}

    def of(self, holders: Mapping[int, str], now: float) -> list[int]:
        """Return the holders (pid → state, as in /proc/<pid>/stat) that have to be killed now."""
        self._stopped = {pid: self._stopped.get(pid, now) for pid, state in holders.items() if state in STOPPED_STATES}
        if now >= self._deadline:
            return list(holders)
        return [pid for pid, since in self._stopped.items() if now - since >= STOPPED_PATIENCE]


class Predecessors:
    """The lock of a job's attempts. A process of an earlier attempt has `patience` seconds to exit by itself."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._hurried = self._given_up = False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        """The descriptor that every process of this attempt inherits."""

    def hurry(self) -> None:
        """Kill the remaining processes: what they may still write is not needed."""
        self._hurried = True

    def give_up(self) -> None:
        """Stop waiting: another supervisor is responsible for those processes."""
        self._given_up = True

    async def gone(self) -> bool:
        """Wait until no process of an earlier attempt is left, and hold the lock. False when the wait was given up."""
        loop = asyncio.get_running_loop()
        overdue = Overdue(self._patience, loop.time())
        while not self._given_up:
            # `flock` and not a POSIX record lock: children inherit it with the descriptor, and it ends with the last.
            if self._lock(fcntl.LOCK_EX):
                return True
            # In a thread, because it reads the descriptors of all processes and would block the loop.
            held = await asyncio.to_thread(holders, self._path)
            # Hurried, no process has any more time.
            for pid in overdue.of(held, float("inf") if self._hurried else loop.time()):
                log.warning("process %d of an earlier attempt did not end: killed", pid)
                _kill_holder(pid, self._path)
            await asyncio.sleep(POLL_INTERVAL)
        return False

    def share(self) -> None:
        """Share the lock with processes of this attempt that cannot inherit it: those of its outposts (`join`)."""
        # A shared lock still keeps the next attempt out, which needs the lock alone.
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def join(self) -> bool:
        """Hold the lock together with a supervisor that shares it. Return False when an attempt holds it alone."""
        return self._lock(fcntl.LOCK_SH)

    def close(self) -> None:
        """Release this process's share in the lock."""
        os.close(self.descriptor)

    def _lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def holders(path: Path) -> dict[int, str]:
    """Return the other processes of this account that have the file open: pid → state."""
    try:
        wanted = os.stat(path)
    except FileNotFoundError:
        return {}
    found: dict[int, str] = {}
    for entry in _pids():
        if entry != os.getpid() and _has_open(entry, wanted):
            try:
                found[entry] = stat_fields(entry)[0]
            except ProcessLookupError:
                continue
    return found


def _pids() -> Iterable[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False  # it has exited, or belongs to another account
    for descriptor in descriptors:
        try:
            found = os.stat(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if os.path.samestat(found, wanted):
            return True
    return False


def _kill_holder(pid: int, path: Path) -> None:
    try:
        # Identified before the check: a process that gets this pid in between is not signalled.
        identity = identify(pid)
        if _has_open(pid, os.stat(path)):
            send_signal(identity, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        log.debug("process %d has exited in the meantime", pid)


def end_leftovers(job_id: str) -> int:
    """Kill every other process of this account that belongs to the job, and return how many there were. Blocks."""
    return end_processes(f'"job_id":"{job_id}"'.encode())
