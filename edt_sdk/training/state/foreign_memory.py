"""Read tensors directly from the memory of another process on this host. The reader makes the only copy.

The owner sends a `MemoryLocation`: its pid, the addresses, and a random token with its address. The reader reads the
token before and after everything else. If it is right both times, the memory belonged to the owner all the time,
because a process that got the same pid later would hold another value there. Linux allows such reads between processes
of the same user that see each other's pids. Where they are impossible (other hosts, strict containers), `MemoryReader`
raises before anything is read. Only the reader writes, and only into its own memory.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from edt_sdk.training.exchange.peer_errors import PeerLost

_PR_SET_PTRACER = 0x59616D61
# Bytes that one system call reads. Two threads take alternate pieces.
_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class MemoryLocation:
    """Locates the tensors of a process.

    Attributes:
        pid: the owner's.
        mark: address of the 8 bytes that hold the token.
        token: random number that identifies the owner.
        addresses: of the tensors, in an order that owner and reader know.
    """

    pid: int
    mark: int
    token: int
    addresses: tuple[int, ...]


class SharedTensors:
    """Lets other processes read dense tensors on the CPU while this object lives. They must not change in that time."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        self._mark = torch.tensor([secrets.randbits(62)])
        _let_siblings_read()
        addresses = tuple(tensor.data_ptr() for tensor in tensors)
        self.location = MemoryLocation(os.getpid(), self._mark.data_ptr(), int(self._mark), addresses)


class MemoryReader:
    """Reads the tensors of another process. OSError when this process cannot read that memory."""

    def __init__(self, location: MemoryLocation) -> None:
        self._location = location
        self._prove()

    def read(self, into: Sequence[Tensor]) -> None:
        """Fill these tensors, dense and on the CPU, with those of the owner.

        PeerLost when the owner is gone: the content of the tensors is undefined then.
        """
        pieces = [
            (address + start, tensor.data_ptr() + start, min(_PIECE, tensor.nbytes - start))
            for address, tensor in zip(self._location.addresses, into, strict=True)
            for start in range(0, tensor.nbytes, _PIECE)
        ]
        errors: list[OSError] = []

        def every_second(first: int) -> None:
            try:
                for theirs, ours, length in pieces[first::2]:
                    _read(self._location.pid, theirs, ours, length)
            except OSError as error:
                # Collected and not raised: an error in the second thread would only be printed there.
                errors.append(error)

        # The owner waits in the meantime, so its core is free for a second thread.
        second = threading.Thread(target=every_second, args=(1,), name="edt-read", daemon=True)
        if len(pieces) > 1:
            second.start()
        every_second(0)
        if len(pieces) > 1:
            second.join()
        try:
            # Once more: the owner may have died, and another process may have its pid and its addresses by now.
            self._prove()
        except OSError as error:
            errors.append(error)
        if errors:
            raise PeerLost(f"process {self._location.pid}, whose memory was being read, is gone ({errors[0]})")

    def _prove(self) -> None:
        found = ctypes.c_int64()
        _read(self._location.pid, self._location.mark, ctypes.addressof(found), ctypes.sizeof(found))
        if found.value != self._location.token:
            raise OSError("that process is another one")


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@cache
def _call() -> Callable[..., int]:
    try:
        function = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (AttributeError, OSError) as wrong:
        raise OSError("this system cannot read another process's memory") from wrong
    function.restype = ctypes.c_ssize_t
    result: Callable[..., int] = function
    return result


def _read(pid: int, theirs: int, ours: int, length: int) -> None:
    done = 0
    while done < length:
        to, origin = _Range(ours + done, length - done), _Range(theirs + done, length - done)
        one = ctypes.c_ulong(1)
        count = _call()(pid, ctypes.byref(to), one, ctypes.byref(origin), one, ctypes.c_ulong(0))
        if count <= 0:
            wrong = ctypes.get_errno() if count < 0 else 0
            raise OSError(wrong, os.strerror(wrong) if wrong else "nothing was read")
        done += count


@cache
def _let_siblings_read() -> None:
    """Let the children of this process's parent read its memory, where Yama allows ancestors only."""
    # Workers are siblings below their supervisor, and Yama lets all descendants of the process named here read
    # (decision 025).
    parent = os.getppid()
    if parent > 1:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(parent), 0, 0, 0)
