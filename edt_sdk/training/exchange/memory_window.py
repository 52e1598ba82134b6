"""Share memory of this process with the other members on its host: a window, and views of other windows.

A window is an anonymous file in memory (`memfd_create`). It has no name that a killed process could leave behind, the
size of /dev/shm does not limit it, and it is freed with the last process that maps it (decision 012). Others open it
through /proc, which the system allows to processes of the same user in the same pid namespace. A random token at the
start of the window proves its identity. Only the owner writes. This module never communicates and never adds.
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
TELLS_HOSTS = 1 << 62
"""Marks the token of a member that can say whom it sees. Those of the versions before do not have it."""
IN_PLACE = -1 << 63
"""Marks the token of a member that leaves finished slices in its vector itself, for others to read there."""
# Bytes touched per call: while the kernel provides pages, this process can map nothing.
_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """Identifies a window by process, descriptor and token: three words that travel between members."""

    pid: int
    descriptor: int
    token: int


def open_window() -> Window | None:
    """Open a window. None where the system lacks such memory or forbids it."""
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return Window()
    except OSError as wrong:
        log.info("no memory that other workers could read (%s): gradients are sent to them", wrong.strerror)
        return None


class Window:
    """Holds the window of this process. Created by `open_window`.

    The first page is a notice board: words that announce the addresses of vectors to the other members.

    Attributes:
        address: announce it to the other members.
        board: int64 [words of a page]. Word 0 is the token, the owner uses the others.
    """

    def __init__(self) -> None:
        self._file = -1
        # CLOEXEC: a program that the user code starts must not inherit the window.
        self._file = os.memfd_create("edt-window", os.MFD_CLOEXEC)
        self._length = 0
        self._growing = threading.Lock()
        _, page = self.allocate(mmap.PAGESIZE)
        self.board = page.view(_WORD)
        self.address = Address(os.getpid(), self._file, IN_PLACE | TELLS_HOSTS | secrets.randbits(62))
        self.board[0] = self.address.token

    def allocate(self, nbytes: int) -> tuple[int, Tensor]:
        """Allocate memory. Return its start in the window, and uint8 [nbytes] of zeros on a page boundary. Thread-safe.

        The memory stays in the window as long as this object lives, even without the tensor.
        """
        # Two threads allocate: the training thread, and the one that provides memory ahead of a change (decision 025).
        with self._growing:
            start = self._length
            # Whole pages, because others map each allocation separately, and mmap takes offsets in pages.
            self._length += -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self._file, self._length)
        return start, _mapped(self._file, start, nbytes)

    def release(self, start: int, nbytes: int) -> None:
        """Give the pages of allocated memory back to the kernel. They are zeros when they are touched again."""
        with mmap.mmap(self._file, nbytes, offset=start) as memory:
            memory.madvise(mmap.MADV_REMOVE)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class View:
    """Maps the window of another member.

    Raises:
        OSError: the window cannot be read from this process.
    """

    def __init__(self, address: Address) -> None:
        self._file = -1
        self._file = os.open(f"/proc/{address.pid}/fd/{address.descriptor}", os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(self._file).st_size < mmap.PAGESIZE:
            raise OSError("that descriptor is no window")
        self.board = _mapped(self._file, 0, mmap.PAGESIZE).view(_WORD)
        # The kernel may have reused the pid and the descriptor. Only the token proves that this is the announced
        # window.
        if int(self.board[0]) != address.token:
            raise OSError("that descriptor is another window")

    def memory(self, start: int, nbytes: int) -> Tensor:
        """Return the memory that the owner's `allocate` returned: uint8 [nbytes]. Read-only by contract."""
        return _mapped(self._file, start, nbytes)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


def touch(memory: Tensor) -> None:
    """Make the kernel provide the pages of uint8 [nbytes] now. Reading keeps the content, also under concurrent use.

    The kernel has to find and clear each page, which takes longer than filling it. Other Python threads keep running.
    """
    for start in range(0, len(memory), _PIECE):
        memory[start : start + _PIECE : mmap.PAGESIZE].sum()


def _mapped(file: int, start: int, nbytes: int) -> Tensor:
    # The tensor holds the mapping, and the mapping holds its own descriptor.
    return torch.frombuffer(mmap.mmap(file, nbytes, offset=start), dtype=torch.uint8)
