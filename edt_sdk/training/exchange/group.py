"""One process group per generation behind one small class, and the stores that bring its members together.

A `Group` is built fresh for every generation and dropped as a whole: after a failure dropping it closes its sockets,
which is what wakes the other members. CPU tensors travel over gloo, CUDA tensors over NCCL (never run on a GPU by our
tests). Everything listens on the one address it is given. There is no timeout to tune: a peer that dies closes its
sockets, a peer that hangs is the supervisor's to see. Never adds numbers; never knows what the bytes mean.

Building a group cannot be interrupted once it waits inside the library for somebody who has died. So it is done in a
thread with a connection of its own, and whoever gives up leaves that thread behind: it drops what it may have built.
"""

from __future__ import annotations

import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

# Links between members that have all arrived are built within milliseconds; this bounds a death in between.
_BUILD = timedelta(seconds=60)
_FOREVER = timedelta(days=365)
_POLL = 0.002
# How often somebody who waits for a group looks whether to go on waiting.
_LOOK = 0.01
_NOTHING = torch.empty(0, dtype=torch.uint8)


class Handle(Protocol):
    """A transfer under way."""

    def wait(self) -> object:
        """Block until it is done; RuntimeError when a member is gone. Tensors must not be touched before."""


class _Backend(Protocol):
    """What gloo and NCCL have in common; torch's own stubs do not declare it."""

    def alltoall_base(self, output: Tensor, input: Tensor, out_splits: list[int], in_splits: list[int]) -> Handle: ...
    def _allgather_base(self, output: Tensor, input: Tensor) -> Handle: ...
    def allreduce(self, tensors: list[Tensor]) -> Handle: ...
    def broadcast(self, tensor: Tensor, root: int) -> Handle: ...
    def send(self, tensors: list[Tensor], dst: int, tag: int) -> Handle: ...
    def recv(self, tensors: list[Tensor], src: int, tag: int) -> Handle: ...
    def abort(self) -> None: ...
    def _set_default_timeout(self, timeout: timedelta) -> None: ...


class _Done:
    def wait(self) -> bool:
        return True


class Watch(Protocol):
    """Who wants to know whether this member computes or waits for others."""

    def waiting(self) -> None:
        """It begins to wait."""

    def computing(self) -> None:
        """It goes on."""


class _Transfer:
    """A handle of the library's, waited for in this file: `lost.py` tells by that whose error it is."""

    def __init__(self, handle: Handle, watch: Watch | None) -> None:
        self._handle: Handle | None = handle
        self._watch = watch

    def wait(self) -> object:
        # No RuntimeError: that would be taken for the loss of a member.
        if self._handle is None:
            raise ValueError("this transfer's group was closed")
        if self._watch is None:
            return self._handle.wait()
        self._watch.waiting()
        done = self._handle.wait()
        self._watch.computing()
        return done

    def drop(self) -> None:
        """Let go of the library's handle, which keeps the sockets of its group open."""
        self._handle = None


def open_store(interface: str) -> tuple[TCPStore, int]:
    """A store that listens on (`interface`, a free port), and that port.

    `TCPStore(host, 0, is_master=True)` would listen on every interface of the machine, so it gets the descriptor of a
    socket that is already bound.
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
    """A client of another worker's store; RuntimeError when nobody listens there any more.

    The library would go on trying a refused port until its timeout. A worker listens before anybody hears of it, so a
    refusal means that it is gone.
    """
    try:
        socket.create_connection((host, port), timeout=_BUILD.total_seconds()).close()
    except OSError as error:
        raise RuntimeError(f"The worker whose store is at {host}:{port} is gone: {error}.") from error
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_BUILD)


class Group:
    """The members of one generation.

    Args:
        store: rank 0's, or what makes a new connection to it; None is enough when world is 1. A connection that
            somebody who gave up has left behind is of no use to others.
        rank, world: this member, and how many there are.
        device: where the tensors live; a CUDA device adds NCCL beside gloo.
        interface: address that gloo binds to.
        generation: its number; keys of different generations never meet in a store.
        waiting: called again and again until the group is built; raise in it to give up.

    Attributes:
        watch: told of every wait for other members, None for nobody.

    Every transfer must be called by all members in the same order. RuntimeError when a member is gone; the group is of
    no use then: leave the `except` block (the traceback keeps the group alive), `close()` it, and only then wait for
    anybody.
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
        self.watch: Watch | None = None
        # Whoever keeps one, in a traceback or half-way through an update, must not keep the group open with it.
        self._transfers: weakref.WeakSet[_Transfer] = weakref.WeakSet()
        if world == 1:
            return
        if store is None:
            raise ValueError("a group of several members needs a store")
        self._gloo, self._nccl = _Building(store, rank, world, device, interface, generation).wait(waiting)

    def all_to_all(self, output: Tensor, input: Tensor, out_splits: Sequence[int], in_splits: Sequence[int]) -> Handle:
        """Send the r-th split of `input` to rank r, receive its split for us; 1-D contiguous, splits may be 0."""
        if self.world == 1:
            output.copy_(input)
            return _Done()
        return self._started(self._backend(input).alltoall_base(output, input, list(out_splits), list(in_splits)))

    def all_gather(self, output: Tensor, input: Tensor) -> Handle:
        """`output` becomes everybody's `input` in rank order; 1-D contiguous, world × the length of `input`."""
        if self.world == 1:
            output.copy_(input)
            return _Done()
        return self._started(self._backend(input)._allgather_base(output, input))

    def all_reduce(self, tensor: Tensor) -> Handle:
        """`tensor` becomes the sum of everybody's, added in whatever order the library likes; contiguous."""
        if self.world == 1:
            return _Done()
        return self._started(self._backend(tensor).allreduce([tensor]))

    def broadcast(self, tensor: Tensor, src: int) -> Handle:
        """`tensor` becomes that of rank `src`; same shape and type everywhere, contiguous."""
        if self.world == 1:
            return _Done()
        return self._started(self._backend(tensor).broadcast(tensor, src))

    def broadcast_bytes(self, data: bytes | None, src: int) -> bytes:
        """What rank `src` passed as `data`; the others pass None."""
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
        if len(content):
            self.broadcast(content, src).wait()
        return content.numpy().tobytes() if data is None else data

    def barrier(self) -> None:
        """Until every member has come here."""
        if self.world > 1:
            self.all_gather(torch.empty(self.world, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)).wait()

    def send(self, tensor: Tensor, dst: int) -> Handle:
        """Give one member a contiguous tensor, which it must be receiving."""
        return self._started(self._backend(tensor).send([tensor], dst, 0))

    def recv(self, tensor: Tensor, src: int) -> Handle:
        """Fill a contiguous tensor with what rank `src` sends; shape and type must be the sender's."""
        return self._started(self._backend(tensor).recv([tensor], src, 0))

    def close(self) -> None:
        """Drop the group and close its sockets. May be called twice."""
        for transfer in tuple(self._transfers):
            transfer.drop()
        backends = [backend for backend in (self._gloo, self._nccl) if backend is not None]
        self._gloo = self._nccl = None
        for backend in backends:
            backend.abort()  # closes the connections, which wakes the others
        # The library's destructors wait for what is queued, which may wait for somebody who waits in his own: not here.
        if backends:
            del backend
            threading.Thread(target=backends.clear, name="edt-group-drop", daemon=True).start()

    def _started(self, handle: Handle) -> _Transfer:
        transfer = _Transfer(handle, self.watch)
        self._transfers.add(transfer)
        return transfer

    def _backend(self, tensor: Tensor) -> _Backend:
        backend = self._nccl if tensor.device.type == "cuda" else self._gloo
        if backend is None:
            # No RuntimeError: that would be taken for the loss of a member.
            raise ValueError(f"The group of generation {self.generation} has no link for {tensor.device} tensors.")
        return backend


class _Building:
    """The links of a group while they are made, in a thread that can be left behind."""

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
        self._built: tuple[_Backend, _Backend | None] | None = None
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name=f"edt-group-{generation}", daemon=True).start()

    def wait(self, waiting: Callable[[], None] | None) -> tuple[_Backend, _Backend | None]:
        """gloo and, where there is a GPU, NCCL; RuntimeError when a member is gone, what `waiting` raises."""
        try:
            while not self._done.wait(_LOOK):
                if waiting is not None:
                    waiting()
        except BaseException:
            with self._lock:
                self._abandoned = True
                self._built = None  # what was built meanwhile closes its sockets now, what is built later at once
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
        except Exception as error:  # it is the waiting thread's, whatever it is
            # Without the traceback, which would keep a half-built group alive.
            self._error = error.with_traceback(None)
        self._done.set()

    def _build(self) -> None:
        store = self._store() if callable(self._store) else self._store
        prefix = PrefixStore(f"generation-{self._generation}", store)
        if not self._everybody(prefix):
            return
        gloo = _gloo(prefix, self._rank, self._world, self._interface)
        nccl = _nccl(PrefixStore("nccl", prefix), self._rank, self._world) if self._device.type == "cuda" else None
        with self._lock:
            if not self._abandoned:
                self._built = gloo, nccl

    def _everybody(self, store: Store) -> bool:
        """Wait until every member has arrived; False when nobody waits for it any more.

        The rendezvous of a backend cannot be given up, and a member may take as long as an update takes to reach its
        boundary, or die before: so the wait is here, and the backend's own is short.
        """
        store.set(f"here/{self._rank}", "")
        everybody = [f"here/{member}" for member in range(self._world)]
        while not store.check(everybody):
            if self._abandoned:
                return False
            time.sleep(_POLL)
        return True


def _gloo(store: Store, rank: int, world: int, interface: str) -> _Backend:
    gloo: Any = dist.ProcessGroupGloo  # its options are missing from torch's type stubs
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=interface)]
    options._timeout = _BUILD
    group: _Backend = gloo(PrefixStore("gloo", store), rank, world, options)
    group._set_default_timeout(_FOREVER)
    return group


def _nccl(store: Store, rank: int, world: int) -> _Backend:
    nccl: Any = dist.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = _FOREVER
    group: _Backend = nccl(store, rank, world, options)
    return group
