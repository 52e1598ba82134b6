"""A worker's heartbeat: a few bytes of shared memory that the worker writes and its supervisor reads.

A heartbeat needs no message and no thread. A process that is stopped or hangs sends nothing, and a process that
computes for a minute in a single call has no thread free to send. The worker stores the phase that starts and the time.
The reader decides how old a heartbeat may be. Times are CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from edt_sdk.schemas.wire.regular import read_regular

# The fields are sequence, phase, updates, since. The sequence is odd while the others are being written: a lock would
# stay held when the worker is killed or stopped in between.
_LAYOUT = struct.Struct("<QQQd")
# At this signal a worker writes the stack of its main thread to stderr. Its handler is in C, so that a loop inside a
# library answers too. The last of the real-time signals, which a job's own code hardly ever uses.
STACK_SIGNAL = signal.SIGRTMAX


class Phase(IntEnum):
    """What a worker is doing."""

    OUTSIDE = 0
    """The worker prepares, or waits to become a member. There is no deadline."""
    COMPUTING = 1
    """The worker runs a micro-batch, an optimizer step or a hook. When that does not end, this worker hangs."""
    WAITING = 2
    """The worker waits for other members, or for the supervisor."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat: `updates` are committed, `since` is when the phase was (re)entered, in monotonic seconds."""

    phase: Phase
    updates: int
    since: float


class Pulse:
    """The worker's end of the heartbeat.

    Args:
        path: the file, made when missing. "" writes nowhere, for workers without a supervisor that watches them.
    """

    def __init__(self, path: str) -> None:
        self._map: mmap.mmap | None = None
        self._sequence = 0
        if path:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(descriptor, _LAYOUT.size)
                self._map = mmap.mmap(descriptor, _LAYOUT.size)
            finally:
                os.close(descriptor)

    def beat(self, phase: Phase, updates: int) -> None:
        """Store the phase that starts now."""
        if self._map is None:
            return
        self._sequence += 2
        _LAYOUT.pack_into(self._map, 0, self._sequence - 1, phase, updates, time.monotonic())
        # The even number last: writing several fields is not atomic, and a reader in between finds the odd one.
        struct.pack_into("<Q", self._map, 0, self._sequence)


def read(path: Path) -> Beat | None:
    """Return the newest heartbeat in a file, None when there is none yet or it is just being written."""
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return None
    if len(data) != _LAYOUT.size:
        return None
    sequence, phase, updates, since = _LAYOUT.unpack(data)
    # An odd sequence means that the writer is in the middle of a heartbeat. No retry: the supervisor reads again soon.
    return None if sequence == 0 or sequence % 2 else Beat(Phase(phase), updates, since)
