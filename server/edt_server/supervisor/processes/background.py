"""A process that others come before: it computes when a core is idle, and is killed first where memory runs out.

Both can be taken back, else neither is done: an account without rights of its own may lower its processes for good
only, and one that is to train some time must not stay behind for ever. Thin; processes that are gone are passed over.
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


def put_behind(pid: int) -> None:
    """Let a process come behind all others of this account; what it starts from now on too."""
    with contextlib.suppress(OSError):
        _badness(pid).write_text(str(_FIRST_TO_GO))
    if _may_raise():
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def put_among(pid: int) -> None:
    """Undo `put_behind`, for the process, its threads and its descendants."""
    for process in _family(pid):
        with contextlib.suppress(OSError):
            _badness(process).write_text(_badness(os.getpid()).read_text())
        if _may_raise():
            # Twice: a thread may have begun another one meanwhile.
            for thread in (*_threads(process), *_threads(process)):
                with contextlib.suppress(OSError):
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


@cache
def _may_raise() -> bool:
    """Whether an idle process can become an ordinary one again (sched(7))."""
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
