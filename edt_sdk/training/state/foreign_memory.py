"""Memory of another process of this host, read where it lies: one copy, by the reader, while the owner does nothing.

The owner tells a `Place`: its process number, addresses, and a random number with the address of that. Whoever has read
the number, before and behind everything else, has read from the process that was meant, and it was there all the time:
a process number that is given to another process would show. Linux grants it to processes of one user that see each
other's numbers; where it does not (containers with a profile of their own, other hosts), `Reader` says so before
anything is read. Only the reader writes, and only into its own memory.
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
# Read by one call; two threads take turns at such pieces.
_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where tensors of this process lie; it pickles.

    Attributes:
        pid: of the owner.
        mark: address of 8 bytes that prove who it is.
        token: what is in them.
        addresses: of the tensors, in an order that owner and reader know.
    """

    pid: int
    mark: int
    token: int
    addresses: tuple[int, ...]


class Shown:
    """Tensors that others may read as long as this object lives; they must not change meanwhile.

    Args:
        tensors: dense, on the CPU.

    Attributes:
        place: tell it to the readers.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        self._mark = torch.tensor([secrets.randbits(62)])
        _let_siblings_read()
        addresses = tuple(tensor.data_ptr() for tensor in tensors)
        self.place = Place(os.getpid(), self._mark.data_ptr(), int(self._mark), addresses)


class Reader:
    """Reads what another process shows.

    Args:
        place: as the owner told it.

    Raises:
        OSError: it cannot be read from here.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._prove()

    def read(self, into: Sequence[Tensor]) -> None:
        """Fill these tensors, dense and on the CPU, with those of the place.

        Raises:
            PeerLost: the owner is gone. The tensors are undefined then.
        """
        pieces = [
            (address + start, tensor.data_ptr() + start, min(_PIECE, tensor.nbytes - start))
            for address, tensor in zip(self._place.addresses, into, strict=True)
            for start in range(0, tensor.nbytes, _PIECE)
        ]
        errors: list[OSError] = []

        def every_second(first: int) -> None:
            try:
                for theirs, ours, length in pieces[first::2]:
                    _read(self._place.pid, theirs, ours, length)
            except OSError as error:
                errors.append(error)

        # The owner waits meanwhile: there is a core for the second one.
        second = threading.Thread(target=every_second, args=(1,), name="edt-read", daemon=True)
        if len(pieces) > 1:
            second.start()
        every_second(0)
        if len(pieces) > 1:
            second.join()
        try:
            self._prove()
        except OSError as error:
            errors.append(error)
        if errors:
            raise PeerLost(f"process {self._place.pid}, whose memory was being read, is gone ({errors[0]})")

    def _prove(self) -> None:
        found = ctypes.c_int64()
        _read(self._place.pid, self._place.mark, ctypes.addressof(found), ctypes.sizeof(found))
        if found.value != self._place.token:
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
    """Where the system lets a process be read by its ancestors only (Yama): by what the parent has started, too."""
    parent = os.getppid()
    if parent > 1:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(parent), 0, 0, 0)
