"""Keep the newest state in memory that outlives the worker: in two slots, files on a tmpfs that are written in turn.

A slot is marked invalid before its first byte changes and valid after its last one, and the other slot stays as it is
in the meantime. So from the first copy on, a complete state survives whenever the writer is killed. A
slot needs no checksum: stores of a killed process reach the shared pages, and a machine that goes down takes the whole
tmpfs with it. The bytes are those of `transfer.send`, written straight into the mapping. `CopyInterval` limits how
often a state is copied.

A slot can be *pinned* for an epoch: it holds the state at the end of that epoch and is not overwritten until the files
of the epoch are written, by this writer or, after its death, by the next one. The files are written from the slot
itself, and so are the other checkpoints: another copy would be as large as weights and optimizer together.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from edt_sdk.training.state import transfer
from edt_sdk.training.state.state import State

log = logging.getLogger(__name__)

SHARE = 0.02
_MAGIC = b"edtmem-4"
# A slot of version 0.1 has the same header before a pickled head, which `transfer.receive` still reads.
_READABLE = (_MAGIC, b"edtmem-3")
_INVALID, _VALID = 0, 1
# magic, valid, training, position, updates, bytes after the header, epoch it is pinned for (from 1, 0 for none)
_HEADER = struct.Struct("<8sQQQQQQ")
_VALID_AT, _EPOCH_AT = 8, 48
_DATA = 4096
_BYTES_PER_SECOND = 2e9


class CopyInterval:
    """Limits how often a state is copied, so that copying takes at most `share` of the time on a monotonic clock.

    After a copy that took c seconds the next one is due c ÷ share − c seconds later.
    """

    def __init__(self, share: float = SHARE, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._clock = clock
        self._since = clock()
        self._estimate = 0.0

    def expect(self, cost: float) -> None:
        """Raise the estimate of the next copy's cost to at least `cost` seconds."""
        self._estimate = max(self._estimate, cost)

    @property
    def due(self) -> bool:
        """Return whether a copy may be made now."""
        return self._share * (self._clock() - self._since) >= self._estimate * (1 - self._share)

    def took(self, cost: float) -> None:
        """Record a copy that has just ended and took `cost` seconds."""
        self._estimate = cost
        self._since = self._clock()


@dataclass(frozen=True, slots=True)
class MirrorSlot:
    """Locates a complete state in memory. `epoch` (from 1) is the epoch it is pinned for, 0 for none."""

    path: Path
    position: int
    updates: int
    epoch: int = 0


class SlotState:
    """A state that was just copied into a slot, which is not overwritten until `release`."""

    def __init__(self, memory: mmap.mmap, places: dict[int, int], release: Callable[[], None]) -> None:
        self._memory = memory
        self._places = places
        self.release = release

    def view(self, tensor: Tensor) -> Tensor | None:
        """Return the copy of a tensor of the state, None where it does not lie in the slot by itself."""
        begin = self._places.get(tensor.data_ptr())
        if begin is None or begin % tensor.element_size() or tensor.nbytes <= transfer.SMALL:
            return None
        # With a storage of its own, because a file gets the whole storage of a tensor.
        memory = torch.frombuffer(self._memory, dtype=torch.uint8, count=tensor.nbytes, offset=begin)
        return memory.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


class Mirror:
    """Holds the two slots of a training. None or a missing folder switches the mirror off."""

    def __init__(self, folder: Path | None, training: int, pace: CopyInterval | None = None) -> None:
        self._folder = folder if folder is not None and folder.is_dir() else None
        self._training = training
        self._pace = pace or CopyInterval()
        self._maps: dict[Path, _Mapping] = {}
        self._held: set[Path] = set()

    def copy_if_due(self, capture: Callable[[], State], position: int, updates: int) -> bool:
        """Copy the state if a copy is due. Return whether it was copied. Lack of memory switches the mirror off."""
        if self._folder is None or not self._pace.due:
            return False
        begin = time.monotonic()
        state = capture()
        # The cost of the first copy is estimated from the size, which is known only after the capture. A large state
        # may then not be due after all.
        self._pace.expect(size_of(state) / _BYTES_PER_SECOND)
        if not self._pace.due:
            return False
        kept = self._copied(begin, state, position, updates)
        if kept is not None:
            kept.release()
        return kept is not None

    def pin(self, state: State, position: int, updates: int, epoch: int = 0) -> SlotState | None:
        """Copy the state and return the copy, which is kept until its `release`. None when that is not possible.

        The end of an `epoch` (from 1) is also pinned until `unpin`. Lack of memory never raises, as in `copy_if_due`.
        """
        if self._folder is None:
            return None
        return self._copied(time.monotonic(), state, position, updates, epoch)

    def _copied(self, begin: float, state: State, position: int, updates: int, epoch: int = 0) -> SlotState | None:
        try:
            kept = self.put(state, position, updates, epoch, hold=True) if self._has_room(size_of(state)) else None
        except OSError as error:
            self._off(f"{error.strerror or error}")
            return None
        # The copy of an epoch's end counts like one that was due.
        if kept is not None:
            self._pace.took(time.monotonic() - begin)
        return kept

    def pinned(self) -> list[MirrorSlot]:
        """Return the slots that are pinned for an epoch, the oldest epoch first."""
        return sorted((slot for slot in self.slots() if slot.epoch), key=lambda slot: slot.epoch)

    def unpin(self, epoch: int) -> None:
        """Release the slot of `epoch`: its files are written, or given up. Safe from another thread during `put`.

        The thread that writes the files calls this while the training may be copying into the other slot, so it opens
        the file by itself and changes one aligned word.
        """
        for slot in self.pinned():
            if slot.epoch == epoch:
                with contextlib.suppress(FileNotFoundError), slot.path.open("r+b", buffering=0) as file:
                    os.pwrite(file.fileno(), bytes(8), _EPOCH_AT)

    def put(self, state: State, position: int, updates: int, epoch: int = 0, *, hold: bool = False) -> SlotState | None:
        """Copy the state over the older slot that is not in use, and return the copy. None when both are in use.

        With `hold` it is in use from now on.

        Raises:
            OSError: there is not enough memory.
        """
        slots = self.slots()
        owing = {slot.path for slot in slots if slot.epoch} | self._held
        free = [path for path in self._paths() if path not in owing]
        # Both slots are in use while two files are being written.
        if not free:
            return None
        age = {slot.path: slot.position for slot in slots}
        # A slot without a complete state is overwritten first, else the older one: the newer one must survive a kill
        # during the copy.
        path = min(free, key=lambda path: age.get(path, -1))
        mapping = self._mapping(path, _DATA + size_of(state))
        mapping.invalidate()
        peer = _Writer(mapping)
        transfer.send(peer, (0,), state)
        mapping.seal(self._training, position, updates, peer.length, epoch)
        if hold:
            self._held.add(path)
        return SlotState(mapping.memory, peer.places, lambda: self._held.discard(path))

    def slots(self) -> list[MirrorSlot]:
        """Return the slots with a complete state."""
        return [slot for path in self._paths() if (slot := _slot(path, self._training)) is not None]

    def load(self, slot: MirrorSlot) -> State:
        """Return the state of a slot, on the CPU in separate memory. OSError when it cannot be read."""
        with slot.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as memory:
            reader = _Reader(memory)
            state = transfer.receive(reader, 0, nn.Module(), torch.device("cpu"), staged=True)
            # Its memoryview would keep the mapping from being closed.
            del reader
            return state

    def remove(self) -> None:
        """Remove both slots and free their memory."""
        self.close()
        for path in self._paths():
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the mappings. The files stay."""
        for mapping in self._maps.values():
            mapping.close()
        self._maps.clear()

    def _paths(self) -> list[Path]:
        return [] if self._folder is None else [self._folder / f"training-{self._training}.{n}" for n in (0, 1)]

    def _has_room(self, size: int) -> bool:
        if self._folder is None:
            return False
        there = os.statvfs(self._folder)
        # The memory of existing slots counts as free, because they are overwritten.
        ours = sum(path.stat().st_size for path in self._paths() if path.exists())
        free = there.f_bavail * there.f_frsize + ours
        if size < free / 4:
            return True
        self._off(f"{size >> 20} MiB are more than a quarter of the {free >> 20} MiB that are free in {self._folder}")
        return False

    def _off(self, why: str) -> None:
        log.warning("No copy of the state is kept in memory: %s. Checkpoints on disk go on.", why)
        with contextlib.suppress(OSError):
            self.remove()
        self._folder = None

    def _mapping(self, path: Path, size: int) -> _Mapping:
        mapping = self._maps.get(path)
        if mapping is None or not mapping.fits(path, size):
            if mapping is not None:
                mapping.close()
            self._maps[path] = mapping = _Mapping(path, size)
        return mapping


def size_of(state: State) -> int:
    """Return an upper bound of the number of bytes that `transfer.send` writes."""
    tensors = (*state.own.values(), *state.tensors)
    names = sum(len(name) * 4 for name in state.own)
    # Each tensor takes its memory, its entry in the head and its share of `rest`.
    return sum(t.numel() * t.element_size() + 512 + 32 * t.dim() for t in tensors) + names + len(state.rest) + 65536


def _slot(path: Path, training: int) -> MirrorSlot | None:
    try:
        with path.open("rb") as file:
            data = file.read(_HEADER.size)
            length = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return None
    if len(data) != _HEADER.size:
        return None
    magic, valid, own, position, updates, size, epoch = _HEADER.unpack(data)
    whole = magic in _READABLE and valid == _VALID and _DATA + size <= length
    return MirrorSlot(path, position, updates, epoch) if whole and own == training else None


class _Mapping:
    """Maps a slot's file into this process."""

    def __init__(self, path: Path, size: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = max(size, os.fstat(descriptor).st_size)
            # Without this a page that the tmpfs cannot provide would be a SIGBUS in the middle of a copy.
            os.posix_fallocate(descriptor, 0, size)
            self.memory = mmap.mmap(descriptor, size)
            self._inode = os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)
        self.size = size
        self.bytes: Tensor | None = torch.frombuffer(self.memory, dtype=torch.uint8)

    def fits(self, path: Path, size: int) -> bool:
        """Return whether the name still stands for this file and the file is large enough."""
        try:
            # After a removal the name may stand for another file. Stores into the old one would reach no reader.
            return size <= self.size and path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def invalidate(self) -> None:
        struct.pack_into("<Q", self.memory, _VALID_AT, _INVALID)

    def seal(self, training: int, position: int, updates: int, length: int, epoch: int) -> None:
        _HEADER.pack_into(self.memory, 0, _MAGIC, _INVALID, training, position, updates, length, epoch)
        # The valid mark is one aligned word and the last store: a reader sees a complete slot or an invalid one.
        struct.pack_into("<Q", self.memory, _VALID_AT, _VALID)

    def close(self) -> None:
        self.bytes = None
        # A file may be written from it. Then its last reader frees it.
        with contextlib.suppress(BufferError):
            self.memory.close()


class _Done:
    def wait(self) -> None:
        pass


class _Writer:
    """Acts as a peer for `transfer.send` and stores all tensors in a mapping, one after the other."""

    def __init__(self, mapping: _Mapping) -> None:
        self._mapping = mapping
        self.length = 0
        self.places: dict[int, int] = {}
        """Where the copies of tensors begin in the mapping, by the address that they were copied from."""

    def send(self, tensor: Tensor, dst: int) -> _Done:
        begin = _DATA + self.length
        end = begin + tensor.numel() * tensor.element_size()
        if end > self._mapping.size or self._mapping.bytes is None:
            raise ValueError("a state is larger than its tensors; this is a bug in mirror.size_of")
        self._mapping.bytes[begin:end].copy_(tensor.view(torch.uint8))
        self.places.setdefault(tensor.data_ptr(), begin)
        self.length = end - _DATA
        return _Done()

    def recv(self, tensor: Tensor, src: int) -> _Done:
        raise AssertionError("a writer is sent to")


class _Reader:
    """Acts as a peer for `transfer.receive` and reads what a `_Writer` has stored."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memoryview(memory)
        self._at = _DATA

    def recv(self, tensor: Tensor, src: int) -> _Done:
        end = self._at + tensor.numel() * tensor.element_size()
        with self._memory[self._at : end] as part:
            tensor.view(torch.uint8).copy_(torch.frombuffer(bytearray(part), dtype=torch.uint8))
        self._at = end
        return _Done()

    def send(self, tensor: Tensor, dst: int) -> _Done:
        raise AssertionError("a reader is received from")
