"""Memory of this process that the other members on its host can read: a window, and what they see through it.

A window is an anonymous file in memory (`memfd_create`): it has no name that could be left behind, is not bounded by
the size of /dev/shm, and is gone when the last process that maps it is. Others open it through /proc, which the system
grants to processes of the same user that see each other's process numbers; a number drawn by the owner, at the start of
the window, proves that it is the one that was meant. Only the owner writes. Never communicates, never adds.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import threading
from dataclasses import dataclass

import torch
from torch import Tensor

log = logging.getLogger(__name__)

_WORD = torch.int64
# Touched at once: while the system does that, this process can map nothing.
_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """Where a window is: process, descriptor, and the number at its start; three words that travel between members."""

    pid: int
    descriptor: int
    token: int


def open_window() -> Window | None:
    """A new one; None where the system has no such memory, or forbids it."""
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return Window()
    except OSError as wrong:
        log.info("no memory that other workers could read (%s): gradients are sent to them", wrong.strerror)
        return None


class Window:
    """This process's own; made by `open_window`.

    Its first page is a notice board: words that tell the others what lies where.

    Attributes:
        address: tell it to the others.
        board: int64 [words of a page]; word 0 is the token, the others are the owner's to use.
    """

    def __init__(self) -> None:
        self._file = -1
        self._file = os.memfd_create("edt-window", os.MFD_CLOEXEC)
        self._length = 0
        self._growing = threading.Lock()
        _, page = self.allocate(mmap.PAGESIZE)
        self.board = page.view(_WORD)
        self.address = Address(os.getpid(), self._file, secrets.randbits(62))
        self.board[0] = self.address.token

    def allocate(self, nbytes: int) -> tuple[int, Tensor]:
        """New memory: where it begins in the window, and uint8 [nbytes] of zeros on a page boundary.

        It stays in the window as long as this object lives, whoever drops the tensor. From any thread.
        """
        with self._growing:
            start = self._length
            self._length += -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self._file, self._length)
        return start, _mapped(self._file, start, nbytes)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class View:
    """Somebody else's window.

    Raises:
        OSError: it cannot be seen from here.
    """

    def __init__(self, address: Address) -> None:
        self._file = -1
        self._file = os.open(f"/proc/{address.pid}/fd/{address.descriptor}", os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(self._file).st_size < mmap.PAGESIZE:
            raise OSError("that descriptor is no window")
        self.board = _mapped(self._file, 0, mmap.PAGESIZE).view(_WORD)
        if int(self.board[0]) != address.token:
            raise OSError("that descriptor is another window")

    def memory(self, start: int, nbytes: int) -> Tensor:
        """What the owner's `allocate` gave: uint8 [nbytes]; read it only."""
        return _mapped(self._file, start, nbytes)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


def touch(memory: Tensor) -> None:
    """Let the system provide the pages of uint8 [nbytes] now; what is in them stays, whoever uses it meanwhile.

    It has to find and clear each of them, which takes longer than filling it. Other threads of Python go on.
    """
    for start in range(0, len(memory), _PIECE):
        memory[start : start + _PIECE : mmap.PAGESIZE].sum()


def _mapped(file: int, start: int, nbytes: int) -> Tensor:
    # The tensor holds the mapping, and the mapping a descriptor of its own.
    return torch.frombuffer(mmap.mmap(file, nbytes, offset=start), dtype=torch.uint8)
