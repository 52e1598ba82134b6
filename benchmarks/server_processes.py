"""Processes below a server, seen from outside: those that wait for a job or a slot, and what workers are forked from.

Nothing is asked of the server, only /proc, so that what is measured is not changed by measuring it. A spare supervisor
waits when its zygote has torch's library mapped and neither that nor another one has used any processor time for a
while. A job's own zygotes rest too while its number of workers stays: a job may run meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

QUIET = 0.5
LIMIT = 60.0
POLL = 0.05
_LIBRARY = b"libtorch_cpu"
_ZYGOTE = b"edt_sdk.training.zygote"
_WORKER = b"edt_sdk.training.worker"


class Spares:
    """The spare supervisors of one server.

    Args:
        server: its pid.
    """

    def __init__(self, server: int) -> None:
        self._server = server
        self._used: frozenset[int] = frozenset()

    def wait(self) -> None:
        """Return when one waits that did not wait the last time; SystemExit when there is none within a minute."""
        last: dict[int, int] = {}
        supervisors: frozenset[int] = frozenset()
        since = time.monotonic()

        def quiet() -> bool:
            nonlocal last, supervisors, since
            now = {pid: _ticks(pid) for pid in zygotes(self._server) if _LIBRARY in _read(pid, "maps")}
            supervisors = frozenset(_parent(pid) for pid in now)
            if now != last or not supervisors - self._used:
                last, since = now, time.monotonic()
            return time.monotonic() - since >= QUIET

        wait_for(quiet, "a process below the server with torch imported (EdtApp.warm_workers=1)", LIMIT, POLL)
        self._used |= supervisors


def wait_for_standbys(server: int, members: int, standbys: int) -> None:
    """Return when a job of `members` workers has so many more, which rest; SystemExit when not within minutes.

    They prepare when nobody else wants a core, which may take long on a busy machine.

    Args:
        server: its pid; it has no other job.
        members: workers that train.
        standbys: workers that are to be ready for slots to come.
    """
    last: dict[int, int] = {}
    since = time.monotonic()

    def quiet() -> bool:
        nonlocal last, since
        now = {pid: _ticks(pid) for pid in _below(server) if _WORKER in _read(pid, "cmdline").split(b"\0")}
        resting = sum(last.get(pid) == ticks for pid, ticks in now.items())
        if len(now) != members + standbys or resting < standbys:
            since = time.monotonic()
        last = now
        return time.monotonic() - since >= QUIET

    wait_for(quiet, f"{standbys} workers beside the {members} that train (EdtApp.standby_workers)", 4 * LIMIT, POLL)


def zygotes(server: int) -> set[int]:
    """Pids of the processes below a server's supervisors that others are forked from, and of their heirs.

    They have torch imported. The server's own children, its templates, are left out.
    """
    return _zygotes(server, lambda parent: parent != server)


def templates(server: int) -> set[int]:
    """Pids of a server's templates, from which supervisors are forked with their zygotes."""
    return _zygotes(server, lambda parent: parent == server)


def wait_for(condition: Callable[[], Any], what: str, limit: float, poll: float) -> None:
    """Return when `condition`, looked at every `poll` seconds, is true; SystemExit by name after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited in vain for {what} ({limit:.0f} s)")
        time.sleep(poll)


def _zygotes(server: int, below: Callable[[int], bool]) -> set[int]:
    found = {pid for pid in _below(server) if _ZYGOTE in _read(pid, "cmdline").split(b"\0")}
    return {pid for pid in found if below(_parent(pid))}


def _below(root: int) -> set[int]:
    """All descendants of a process."""
    parents = {int(name): _parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found, front = set(), {root}
    while front:
        front = {pid for pid, parent in parents.items() if parent in front} - found
        found |= front
    return found


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _ticks(pid: int) -> int:
    """Processor time, in clock ticks."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def _stat(pid: int) -> list[bytes]:
    """/proc/<pid>/stat behind the name in brackets, which may hold blanks itself (proc(5))."""
    text = _read(pid, "stat")
    return text[text.rindex(b")") + 1 :].split() if text else []


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
