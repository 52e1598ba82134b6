"""Wrap the process group of a generation in one small class, and open the stores that connect its members.

A `Group` is built new for every generation and dropped as a whole (decision 002). After a failure, dropping the group
closes its sockets, which unblocks the other members. CPU tensors travel over gloo, CUDA tensors over NCCL (our tests
never run on a GPU). Every socket listens on one given address. No timeout needs tuning: a peer that dies closes its
sockets, and the supervisor detects a peer that hangs. A peer whose machine is cut off closes nothing, and gloo misses
the death of one whose message has arrived in part: once the supervisor says that it is gone, `wake` ends the wait for
it. This module never adds numbers and does not interpret the
bytes.

A build cannot be interrupted once it waits inside the library for a dead member. So it runs in a thread with its own
store connection. A caller that gives up abandons the thread, and the thread then drops what it has built.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from edt_sdk.training.exchange.group_sockets import Door, Places, places_of, shut_down, written

# Members that have all arrived connect within milliseconds. This timeout covers a death during the build.
_BUILD = timedelta(seconds=60)
_FOREVER = timedelta(days=365)
_SLICE = timedelta(seconds=0.1)
_POLL = 0.002
# Seconds between two calls of the `waiting` callback during a build.
_LOOK = 0.01
_NOTHING = torch.empty(0, dtype=torch.uint8)


class Handle(Protocol):
    """Represents a transfer in progress."""

    def wait(self) -> object:
        """Block until the transfer is done. RuntimeError when a member is gone. Tensors must not be touched before."""


class _Work(Protocol):
    """Declares the library's own handle of a transfer."""

    def wait(self, timeout: timedelta = ...) -> object: ...
    def is_completed(self) -> bool: ...


class _Backend(Protocol):
    """Declares what gloo and NCCL have in common, which torch's own stubs leave out."""

    def alltoall_base(self, output: Tensor, input: Tensor, out_splits: list[int], in_splits: list[int]) -> _Work: ...
    def _allgather_base(self, output: Tensor, input: Tensor) -> _Work: ...
    def allreduce(self, tensors: list[Tensor]) -> _Work: ...
    def broadcast(self, tensor: Tensor, root: int) -> _Work: ...
    def send(self, tensors: list[Tensor], dst: int, tag: int) -> _Work: ...
    def recv(self, tensors: list[Tensor], src: int, tag: int) -> _Work: ...
    def abort(self) -> None: ...
    def _set_default_timeout(self, timeout: timedelta) -> None: ...


class _Done:
    def wait(self) -> bool:
        return True


class GroupWatch(Protocol):
    """Receives a callback whenever this member starts or stops waiting for others."""

    def waiting(self) -> None:
        """Called when the member starts to wait."""

    def computing(self) -> None:
        """Called when the member continues."""


class _Transfer:
    """Wraps a handle of the library. `peer_errors.py` recognizes a lost peer because this file does every wait.

    gloo does not wake who waits for a message of which a part has arrived when its sender is gone, not even by a
    shutdown of the connection, which it has closed by then. So a wait also ends once `woken` is set.
    """

    def __init__(self, handle: _Work, watch: GroupWatch | None, woken: threading.Event) -> None:
        self._handle: _Work | None = handle
        self._watch = watch
        self._woken = woken

    def wait(self) -> object:
        # Not a RuntimeError, which the loop would take for a lost member.
        if self._handle is None:
            raise ValueError("this transfer's group was closed")
        if self._watch is None:
            return self._wait(self._handle)
        self._watch.waiting()
        done = self._wait(self._handle)
        self._watch.computing()
        return done

    def _wait(self, handle: _Work) -> object:
        while True:
            try:
                return handle.wait(_SLICE)
            except RuntimeError:
                if handle.is_completed():
                    return handle.wait()  # its own error, or it was done in this moment
                if self._woken.is_set():
                    raise RuntimeError("a member is gone") from None

    def drop(self) -> None:
        """Drop the library's handle, which would keep the sockets of its group open."""
        self._handle = None


class _Message(_Transfer):
    """Wraps the handle of a message between two members, which the library would end when a wait takes too long."""

    def _wait(self, handle: _Work) -> object:
        waiting: Future[object] = Future()

        def wait() -> None:
            try:
                waiting.set_result(handle.wait())
            except RuntimeError as error:
                waiting.set_exception(error)

        threading.Thread(target=wait, name="edt-message", daemon=True).start()
        while not self._woken.is_set():
            with contextlib.suppress(TimeoutError):
                return waiting.result(_SLICE.total_seconds())
        raise RuntimeError("a member is gone")


class _OnGpu(_Transfer):
    """Wraps a handle of NCCL, which `abort` ends."""

    def _wait(self, handle: _Work) -> object:
        return handle.wait()


def open_store(interface: str) -> tuple[TCPStore, int]:
    """Open a store that listens on (`interface`, a free port). Return the store and the port.

    `TCPStore(host, 0, is_master=True)` would listen on every interface of the machine. So the store gets the descriptor
    of a socket that is already bound.
    """
    family = socket.AF_INET6 if ":" in interface else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((interface, 0))
        listener.listen(socket.SOMAXCONN)
        port: int = listener.getsockname()[1]
        store = TCPStore(
            interface,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=_BUILD,
            master_listen_fd=listener.fileno(),
        )
    except BaseException:
        listener.close()
        raise
    listener.detach()  # the store owns the descriptor now
    return store, port


def connect_store(host: str, port: int) -> TCPStore:
    """Connect to the store of another worker. RuntimeError when that worker no longer listens.

    The library would retry a refused port until its timeout. A worker listens before its address is announced, so a
    refusal means that the worker is gone.
    """
    # Probe the port first: the library's own connect retries a refused port for the whole timeout.
    try:
        socket.create_connection((host, port), timeout=_BUILD.total_seconds()).close()
    except OSError as error:
        raise RuntimeError(f"The worker whose store is at {host}:{port} is gone: {error}.") from error
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_BUILD)


class Group:
    """Connects the members of a generation.

    `store` is rank 0's store, or a function that opens a new connection to it. None is enough when `world` is 1. An
    abandoned build leaves its connection in an unknown state, so a retry needs a new connection. A CUDA `device` adds
    NCCL next to gloo, which binds to the address `interface`. `waiting` is called repeatedly until the group is built.
    Raise in it to give up. `watch` is notified of every wait for other members.

    All members must call every transfer in the same order. A transfer raises RuntimeError when a member is gone, and
    the group is unusable then. Leave the `except` block first, because the traceback keeps the group alive. Then call
    `close()`, and only then wait for other processes.
    """

    def __init__(
        self,
        store: Store | Callable[[], Store] | None,
        rank: int,
        world: int,
        *,
        device: torch.device,
        interface: str,
        generation: int,
        waiting: Callable[[], None] | None = None,
    ) -> None:
        self.rank = rank
        self.world = world
        self.generation = generation
        self.device = device
        self._gloo: _Backend | None = None
        self._nccl: _Backend | None = None
        self._places: Places = frozenset()
        self._woken = threading.Event()
        self.watch: GroupWatch | None = None
        # Weak references: a traceback or a half-done update may still hold a transfer, and must not keep the group
        # open.
        self._transfers: weakref.WeakSet[_Transfer] = weakref.WeakSet()
        if world == 1:
            return
        if store is None:
            raise ValueError("a group of several members needs a store")
        # The build runs in a thread, because the caller must be able to give up (a newer generation may be announced).
        building = _Building(store, rank, world, device, interface, generation)
        self._gloo, self._nccl, self._places = building.wait(waiting)

    def all_to_all(self, output: Tensor, input: Tensor, out_splits: Sequence[int], in_splits: Sequence[int]) -> Handle:
        """Send the r-th split of `input` (1-D contiguous) to rank r, receive one from each rank. Splits may be 0."""
        if self.world == 1:
            output.copy_(input)
            return _Done()
        handle = self._backend(input).alltoall_base(output, input, list(out_splits), list(in_splits))
        return self._started(handle, input)

    def all_gather(self, output: Tensor, input: Tensor) -> Handle:
        """Gather every member's `input` into `output` in rank order. 1-D contiguous, world × the length of `input`."""
        if self.world == 1:
            output.copy_(input)
            return _Done()
        return self._started(self._backend(input)._allgather_base(output, input), input)

    def all_reduce(self, tensor: Tensor) -> Handle:
        """Replace `tensor` by the sum over all members, added in an order the library chooses. Contiguous."""
        if self.world == 1:
            return _Done()
        return self._started(self._backend(tensor).allreduce([tensor]), tensor)

    def broadcast(self, tensor: Tensor, src: int) -> Handle:
        """Replace `tensor` by that of rank `src`. Same shape and type everywhere, contiguous."""
        if self.world == 1:
            return _Done()
        return self._started(self._backend(tensor).broadcast(tensor, src), tensor)

    def broadcast_bytes(self, data: bytes | None, src: int) -> bytes:
        """Return the bytes that rank `src` passed as `data`. The other ranks pass None."""
        if self.rank == src:
            if data is None:
                raise ValueError("the source of a broadcast has nothing to send")
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else _NOTHING
            length = torch.tensor([len(data)])
        else:
            length = torch.zeros(1, dtype=torch.int64)
        self.broadcast(length, src).wait()
        if self.rank != src:
            content = torch.empty(int(length), dtype=torch.uint8)
        # Empty data needs no second transfer: the length is enough.
        if len(content):
            self.broadcast(content, src).wait()
        return content.numpy().tobytes() if data is None else data

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all members in rank order. `data` is this member's."""
        lengths = torch.empty(self.world, dtype=torch.int64)
        self.all_gather(lengths, torch.tensor([len(data)])).wait()
        longest = int(lengths.max())
        if longest == 0:
            return [b""] * self.world
        found = torch.empty(self.world * longest, dtype=torch.uint8)
        own = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8)
        self.all_gather(found, own).wait()
        return [
            content.numpy().tobytes()[:length]
            for content, length in zip(found.view(self.world, longest), lengths.tolist(), strict=True)
        ]

    def barrier(self) -> None:
        """Block until every member has called this."""
        if self.world > 1:
            self.all_gather(torch.empty(self.world, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)).wait()

    def send(self, tensor: Tensor, dst: int) -> Handle:
        """Send a contiguous tensor to one member, which must call `recv`."""
        return self._started(self._backend(tensor).send([tensor], dst, 0), tensor, _Message)

    def recv(self, tensor: Tensor, src: int) -> Handle:
        """Fill a contiguous tensor with what rank `src` sends. Shape and type must be the sender's."""
        return self._started(self._backend(tensor).recv([tensor], src, 0), tensor, _Message)

    def wake(self) -> None:
        """End every wait of this member for others, by a RuntimeError there. From any thread; the group is unusable."""
        self._woken.set()
        shut_down(self._places)
        if (nccl := self._nccl) is not None:  # once: another thread may close the group meanwhile
            nccl.abort()

    def close(self) -> None:
        """Drop the group and close its sockets. May be called twice."""
        # Another thread of this process may wait in a transfer, which `abort` does not end.
        self.wake()
        self._places = frozenset()
        for transfer in tuple(self._transfers):
            transfer.drop()
        backends = [backend for backend in (self._gloo, self._nccl) if backend is not None]
        self._gloo = self._nccl = None
        for backend in backends:
            backend.abort()  # closes the connections, which unblocks the other members
        # The library's destructors wait for queued work, which may wait for a peer in a destructor that waits for this
        # process. Run them in a thread, so that two members that close at the same time cannot deadlock.
        if backends:
            del backend
            threading.Thread(target=backends.clear, name="edt-group-drop", daemon=True).start()

    def _started(self, handle: _Work, tensor: Tensor, kind: type[_Transfer] = _Transfer) -> _Transfer:
        transfer = (_OnGpu if tensor.device.type == "cuda" else kind)(handle, self.watch, self._woken)
        self._transfers.add(transfer)
        return transfer

    def _backend(self, tensor: Tensor) -> _Backend:
        backend = self._nccl if tensor.device.type == "cuda" else self._gloo
        if backend is None:
            # Not a RuntimeError, which the loop would take for a lost member.
            raise ValueError(f"The group of generation {self.generation} has no link for {tensor.device} tensors.")
        return backend


class _Building:
    """Builds the links of a group in a thread that can be abandoned."""

    def __init__(
        self,
        store: Store | Callable[[], Store],
        rank: int,
        world: int,
        device: torch.device,
        interface: str,
        generation: int,
    ) -> None:
        self._store = store
        self._rank = rank
        self._world = world
        self._device = device
        self._interface = interface
        self._generation = generation
        self._lock = threading.Lock()
        self._abandoned = False
        self._built: tuple[_Backend, _Backend | None, Places] | None = None
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"edt-group-{generation}", daemon=True).start()

    def wait(self, waiting: Callable[[], None] | None) -> tuple[_Backend, _Backend | None, Places]:
        """Return gloo, NCCL on a GPU, and where the members listen.

        RuntimeError when a member is gone. Errors of `waiting` pass through.
        """
        try:
            while not self._done.wait(_LOOK):
                if waiting is not None:
                    waiting()
        except BaseException:
            # The lock decides the race with the thread: either it sees `_abandoned` and stores nothing, or its result
            # is dropped here.
            with self._lock:
                self._abandoned = True
                self._built = None  # dropping the links closes their sockets
            raise
        built, self._built = self._built, None
        if built is None:
            error, self._error = self._error, None
            if not isinstance(error, RuntimeError):
                raise error or AssertionError("a group is built, given up or fails")
            raise RuntimeError(f"Generation {self._generation} could not be formed: {error}") from error
        return built

    def _run(self) -> None:
        try:
            self._build()
        except Exception as error:  # any error belongs to the waiting thread
            # Without the traceback, which would keep a half-built group alive.
            self._error = error.with_traceback(None)
        self._done.set()

    def _build(self) -> None:
        store = self._store() if callable(self._store) else self._store
        prefix = PrefixStore(f"generation-{self._generation}", store)
        door = Door(self._interface)
        prefix.set(f"here/{self._rank}", written(door.places))
        if not self._everybody(prefix):
            return
        places = frozenset().union(*(places_of(prefix.get(f"here/{rank}")) for rank in range(self._world)))
        gloo = _gloo(prefix, self._rank, self._world, door)
        nccl = _nccl(PrefixStore("nccl", prefix), self._rank, self._world) if self._device.type == "cuda" else None
        with self._lock:
            if not self._abandoned:
                self._built = gloo, nccl, places

    def _everybody(self, store: Store) -> bool:
        """Wait until every member has arrived. Return False when the caller has given up.

        The rendezvous of a backend cannot be cancelled. A member may need a whole update to reach its boundary, or die
        before. So the wait happens here, and the backend's own timeout is short.
        """
        everybody = [f"here/{member}" for member in range(self._world)]
        # Poll instead of `store.wait`, which blocks in the library and cannot be abandoned.
        while not store.check(everybody):
            if self._abandoned:
                return False
            time.sleep(_POLL)
        return True


def _gloo(store: Store, rank: int, world: int, door: Door) -> _Backend:
    gloo: Any = dist.ProcessGroupGloo  # torch's type stubs lack its options
    options = gloo._Options()
    options._devices = [door.device]
    options._timeout = _BUILD
    group: _Backend = gloo(PrefixStore("gloo", store), rank, world, options)
    # The short timeout covers the build alone. A transfer may take as long as the slowest member computes, and the
    # supervisor ends hung members.
    group._set_default_timeout(_FOREVER)
    return group


def _nccl(store: Store, rank: int, world: int) -> _Backend:
    nccl: Any = dist.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = _FOREVER
    group: _Backend = nccl(store, rank, world, options)
    return group
