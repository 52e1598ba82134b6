"""A worker's signs of life: a few bytes of shared memory that the worker writes and its supervisor reads.

No message and no thread: a process that is stopped or hangs sends nothing, and one that computes for a minute in a
single call has nobody who could send. The worker stores what it begins to do and when; how long ago that was is for the
reader to judge. Times are CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

# sequence, phase, updates, since; the sequence is odd while the rest is being written.
_LAYOUT = struct.Struct("<QQQd")


class Phase(IntEnum):
    """What a worker is doing."""

    OUTSIDE = 0
    """Preparing, or waiting to be a member: as long as it takes."""
    COMPUTING = 1
    """A micro-batch, an optimizer step, a hook of the user's: nobody else is to blame when it does not end."""
    WAITING = 2
    """For other members, or for the supervisor."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life: `updates` are committed, `since` is when the phase was (re)entered, in monotonic seconds."""

    phase: Phase
    updates: int
    since: float


class Pulse:
    """The worker's end.

    Args:
        path: of the file; made when missing. "" writes nowhere, for workers that nobody watches.
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
        """Say what begins now."""
        if self._map is None:
            return
        self._sequence += 2
        _LAYOUT.pack_into(self._map, 0, self._sequence - 1, phase, updates, time.monotonic())
        struct.pack_into("<Q", self._map, 0, self._sequence)


def read(path: Path) -> Beat | None:
    """The newest sign of life in a file; None when there is none yet, or it is just being written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) != _LAYOUT.size:
        return None
    sequence, phase, updates, since = _LAYOUT.unpack(data)
    return None if sequence == 0 or sequence % 2 else Beat(Phase(phase), updates, since)
