"""Detect a process that was stopped (SIGSTOP, Ctrl-Z, a debugger), from another process and from inside.

Both ends of the protocol are here. A process that sees another process of this host stopped for `SEEN` seconds, with no
thread having run in between, may act in its place. A process that finds a gap of `NOTICED` seconds in its own beats has
to check whether another process did. Since `NOTICED` is shorter, no such act goes unnoticed (decision 034). A process
that is merely slow is never seen stopped: the kernel reports the state of each thread, and counts how often each got a
processor. Leases are not known here.
"""

from __future__ import annotations

import os
from pathlib import Path

from edt_sdk.schemas.wire.control import ProcessIdentity
from edt_server.system.processes import is_alive, visible

# Seconds: between beats, of a gap that counts, of a stop that counts.
BEAT, NOTICED, SEEN = 0.1, 0.3, 0.5
_STOPPED = "Tt"

Marks = tuple[tuple[str, ...], ...]


class StandstillWatch:
    """Observes processes from outside, one after the other."""

    def __init__(self) -> None:
        self._marks: tuple[ProcessIdentity, Marks] | None = None
        self._since = 0.0

    def stands_still(self, process: ProcessIdentity, now: float) -> bool:
        """Return whether it has been stopped since a look at least `SEEN` before this one, and has not run since.

        `now` is monotonic seconds. A process that is not visible from here is not known to be stopped.
        """
        marks = stopped(process)
        seen = None if marks is None else (process, marks)
        if seen is None or seen != self._marks:
            self._marks, self._since = seen, now
            return False
        return now - self._since >= SEEN


class StandstillPulse:
    """The beats of this process. One thread uses it, but any may call `unbroken_since`.

    Without beats (before `begin`) it knows of no gap.
    """

    def __init__(self) -> None:
        self._beat = float("inf")
        self._broken = float("-inf")

    def begin(self, since: float) -> None:
        """Start to expect beats. A gap counts from `since`, monotonic seconds."""
        self._beat = since

    def beat(self, now: float) -> bool:
        """Beat. Return True when this process may have been stopped since the last beat."""
        gap = now - self._beat >= NOTICED
        if gap:
            self._broken = now  # before the beat: see below
        self._beat = now
        return gap

    def unbroken_since(self, moment: float, now: float) -> bool:
        """Return whether this process has certainly not been stopped for long since then."""
        # The beat is read first: the thread that wrote a fresh beat after a gap has recorded the gap before that.
        return now - self._beat < NOTICED and moment > self._broken


def stopped(process: ProcessIdentity) -> Marks | None:
    """Return None unless every thread of the process is stopped, else a value that changes as soon as a thread runs."""
    if not visible(process) or not is_alive(process):
        return None
    marks: list[tuple[str, ...]] = []
    folder = Path(f"/proc/{process.pid}/task")
    try:
        for thread in sorted(os.listdir(folder)):
            lines = (folder / thread / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            fields = dict(line.partition(":\t")[::2] for line in lines)
            if fields.get("State", "?")[0] not in _STOPPED:
                return None
            # The counts of context switches change when a thread has run between two looks, as under strace (decision
            # 034).
            marks.append((thread, *(value for name, value in fields.items() if name.endswith("ctxt_switches"))))
    except (FileNotFoundError, ProcessLookupError):
        return None  # a thread or the process exited at this moment: it was not stopped
    return tuple(marks)
