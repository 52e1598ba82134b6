"""What a standby's process is to the system, until it has a slot: behind all others, its words hidden, the first to go.

Whether there is one, and whose slot it gets, is decided in `standbys`. Its streams have names that nobody looks for;
with a slot they get those of a worker, so that what it has said while it prepared is in the log.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from edt_server.supervisor.processes.background import put_among, put_behind
from edt_server.supervisor.processes.children import Program
from edt_server.supervisor.processes.memory_left import memory_now, size

log = logging.getLogger(__name__)

_STREAMS = ("stdout", "stderr")


class StandbyProcesses:
    """The standbys of one job that have no slot yet, by their numbers."""

    def __init__(self) -> None:
        self._programs: dict[int, Program] = {}
        self._pids: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._programs)

    def hidden(self, key: int, program: Program) -> Program:
        """The program of one that is to be started, with streams that nobody looks for."""
        hidden = _hidden_name(key, program)
        self._programs[key] = program
        # An earlier supervisor may have used this number.
        _remove(hidden)
        return replace(program, streams=hidden)

    def started(self, key: int, pid: int) -> None:
        """Its process is there and has not begun yet."""
        if key in self._programs:
            self._pids[key] = pid
            put_behind(pid)

    def assign(self, key: int) -> None:
        """It has a slot: from now on it is a worker like the others."""
        program = self._programs.pop(key)
        hidden = _hidden_name(key, program)
        for stream in _STREAMS:
            try:
                os.rename(f"{hidden}.{stream}", f"{program.streams}.{stream}")
            except OSError as wrong:
                log.warning("what worker %d has said is not in its log: %s", key, wrong)
        pid = self._pids.pop(key, None)
        if pid is not None:
            put_among(pid)

    def ended(self, key: int) -> None:
        """Its process has ended, or was never there; nothing for one that has a slot."""
        program = self._programs.pop(key, None)
        self._pids.pop(key, None)
        if program is not None:
            _remove(_hidden_name(key, program))
            with contextlib.suppress(OSError, KeyError):
                os.rmdir(program.environment["LOG_DIR"])  # made for it, and empty unless somebody has written there


def _hidden_name(key: int, program: Program) -> Path:
    return program.streams.with_name(f".standby-{key}")


def _remove(streams: Path) -> None:
    for stream in _STREAMS:
        with contextlib.suppress(OSError):
            os.unlink(f"{streams}.{stream}")


def room_for_another(workers: Collection[int]) -> bool:
    """Whether there is memory for one more process like those of these pids."""
    memory = memory_now()
    return memory is not None and memory.fits(size(workers))


def memory_is_scarce() -> bool:
    """Whether processes that can be done without have to go."""
    memory = memory_now()
    return memory is not None and memory.scarce
