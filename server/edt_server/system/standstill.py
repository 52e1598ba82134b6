"""A process that was stopped (SIGSTOP, Ctrl-Z, a debugger): how another sees it, and how it notices that it was.

Both ends of one bargain. Whoever sees a process of this host stopped for `SEEN` seconds, with no thread having run in
between, may act in its place; whoever finds a gap of `NOTICED` seconds in its own beats has to ask whether somebody
did. Since `NOTICED` is the shorter, no such act passes unnoticed. A process that is merely slow is never seen stopped:
the kernel says so of each thread, and counts how often each was given a processor. Knows nothing of leases.
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


class Watch:
    """Looks at one process after the other from outside."""

    def __init__(self) -> None:
        self._marks: tuple[ProcessIdentity, Marks] | None = None
        self._since = 0.0

    def stands_still(self, process: ProcessIdentity, now: float) -> bool:
        """Whether it has been stopped since a look at least `SEEN` before this one, and has not run since.

        Args:
            process: whom to look at; one that is not visible from here is not known to be stopped.
            now: monotonic seconds of this look.
        """
        marks = stopped(process)
        seen = None if marks is None else (process, marks)
        if seen is None or seen != self._marks:
            self._marks, self._since = seen, now
            return False
        return now - self._since >= SEEN


class Pulse:
    """One's own beats. Used by one thread, but `unbroken_since`, which any may ask.

    Without beats (before `begin`) it knows of no gap.
    """

    def __init__(self) -> None:
        self._beat = float("inf")
        self._broken = float("-inf")

    def begin(self, since: float) -> None:
        """Beats are expected from now on; a gap counts from `since`, monotonic seconds."""
        self._beat = since

    def beat(self, now: float) -> bool:
        """It lives; True when it may have been stopped since the last beat."""
        gap = now - self._beat >= NOTICED
        if gap:
            self._broken = now  # before the beat: see below
        self._beat = now
        return gap

    def unbroken_since(self, moment: float, now: float) -> bool:
        """Whether it has certainly not been stopped for long since then."""
        # The beat is looked at first: whoever has made it fresh after a gap has noted the gap before that.
        return now - self._beat < NOTICED and moment > self._broken


def stopped(process: ProcessIdentity) -> Marks | None:
    """None unless every thread of the process is stopped; else what changes as soon as one of them runs."""
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
            marks.append((thread, *(value for name, value in fields.items() if name.endswith("ctxt_switches"))))
    except (FileNotFoundError, ProcessLookupError):
        return None  # a thread or the process ended in this instant: it was not stopped
    return tuple(marks)
