"""Set how the system treats a standby's process without a slot: lowest priority, hidden streams, the first to kill.

`standbys` decides whether there is one, and which slot it gets. Its streams have hidden names. With a slot they get
the names of a worker's streams, so that the log has what it wrote while it prepared. It computes when a core is idle,
and is killed first when memory runs out. Neither is done where it cannot be undone: an account without privileges may
lower its processes, but not raise them again, and a standby must be able to train at full speed later.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from edt_server.supervisor.processes.children import Program

log = logging.getLogger(__name__)

_CAP_SYS_NICE = 23
_NICEST_LIMIT = 20
_FIRST_TO_GO = 1000
_STREAMS = ("stdout", "stderr")


class StandbyProcesses:
    """The standbys of a job that have no slot yet, by number."""

    def __init__(self) -> None:
        self._programs: dict[int, Program] = {}
        self._pids: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._programs)

    def hidden(self, key: int, program: Program) -> Program:
        """Return the program of a new standby, with hidden streams."""
        hidden = _hidden_name(key, program)
        self._programs[key] = program
        # An earlier supervisor may have used this number.
        _remove(hidden)
        return replace(program, streams=hidden)

    def started(self, key: int, pid: int) -> None:
        """Record the pid of its process, which waits at its gate."""
        if key in self._programs:
            self._pids[key] = pid
            lower_priority(pid)

    def assign(self, key: int) -> None:
        """Make it a worker like the others: it has a slot."""
        program = self._programs.pop(key)
        hidden = _hidden_name(key, program)
        for stream in _STREAMS:
            try:
                os.rename(f"{hidden}.{stream}", f"{program.streams}.{stream}")
            except OSError as wrong:
                log.warning("what worker %d has said is not in its log: %s", key, wrong)
        pid = self._pids.pop(key, None)
        if pid is not None:
            restore_priority(pid)

    def hurry(self, key: int) -> None:
        """Schedule a standby that is told to end like the others: at the lowest priority it would take seconds.

        It stays the first to kill when memory runs out.
        """
        pid = self._pids.pop(key, None)
        if pid is not None:
            restore_scheduling(pid)

    def ended(self, key: int) -> None:
        """Record that its process has exited, or never existed. A standby with a slot is ignored."""
        program = self._programs.pop(key, None)
        self._pids.pop(key, None)
        if program is not None:
            _remove(_hidden_name(key, program))
            with contextlib.suppress(OSError, KeyError):
                os.rmdir(program.environment["LOG_DIR"])  # created for it, and empty unless its code wrote there


def _hidden_name(key: int, program: Program) -> Path:
    return program.streams.with_name(f".standby-{key}")


def _remove(streams: Path) -> None:
    for stream in _STREAMS:
        with contextlib.suppress(OSError):
            os.unlink(f"{streams}.{stream}")


def lower_priority(pid: int) -> None:
    """Lower the priority of a process below all others of this account, and that of its future children."""
    with contextlib.suppress(OSError):
        _badness(pid).write_text(str(_FIRST_TO_GO))
    if _may_raise():
        with contextlib.suppress(OSError):
            # SCHED_IDLE and not `nice`, which would take its share from the workers that train (decision 033).
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def restore_priority(pid: int) -> None:
    """Undo `lower_priority`, for the process, its threads and its descendants."""
    for process in _family(pid):
        with contextlib.suppress(OSError):
            _badness(process).write_text(_badness(os.getpid()).read_text())
    restore_scheduling(pid)


def restore_scheduling(pid: int) -> None:
    """Undo `lower_priority` but for which process is killed first."""
    for process in _family(pid) if _may_raise() else ():
        # Twice: a thread may have started another one in the meantime.
        for thread in (*_threads(process), *_threads(process)):
            with contextlib.suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


@cache
def _may_raise() -> bool:
    """Return whether an idle process can become an ordinary one again (sched(7))."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NICE)
    if soft == resource.RLIM_INFINITY or soft >= _NICEST_LIMIT:
        return True
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_NICE & 1)
    return False


def _family(pid: int) -> Iterator[int]:
    yield pid
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                yield from _family(int(child))


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _badness(pid: int) -> Path:
    return Path(f"/proc/{pid}/oom_score_adj")
