"""Lower a process's priority: it computes when a core is idle, and is killed first when memory runs out.

Neither is done where it cannot be undone. An account without privileges may lower its processes, but not raise them
again, and a standby must be able to train at full speed later. Processes that are gone are ignored.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_CAP_SYS_NICE = 23
_NICEST_LIMIT = 20
_FIRST_TO_GO = 1000


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
        if _may_raise():
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
