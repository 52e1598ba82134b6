"""Set how the system treats a standby's process without a slot: lowest priority, hidden streams, the first to kill.

`standbys` decides whether there is one, and which slot it gets. Its streams have hidden names. With a slot they get
the names of a worker's streams, so that the log has what it wrote while it prepared.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from edt_server.supervisor.processes.background import lower_priority, restore_priority
from edt_server.supervisor.processes.children import Program
from edt_server.supervisor.processes.memory_left import memory_now, size

log = logging.getLogger(__name__)

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


def room_for_another(workers: Collection[int]) -> bool:
    """Return whether there is memory for one more process like those of these pids."""
    memory = memory_now()
    return memory is not None and memory.fits(size(workers))


def memory_is_scarce() -> bool:
    """Return whether optional processes have to go."""
    memory = memory_now()
    return memory is not None and memory.scarce
