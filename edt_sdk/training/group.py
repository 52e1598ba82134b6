"""One process group per generation behind one small class, and the stores that bring its members together.

A `Group` is built fresh for every generation and dropped as a whole: after a failure dropping it closes its sockets,
which is what wakes the other members. CPU tensors travel over gloo, CUDA tensors over NCCL (never run on a GPU by our
tests). Everything listens on the one address it is given. There is no timeout to tune: a peer that dies closes its
sockets, a peer that hangs is the supervisor's to see. Never adds numbers; never knows what the bytes mean.
"""

from __future__ import annotations

import socket
import time
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
_NOTHING = torch.empty(0, dtype=torch.uint8)


class Handle(Protocol):
    """A transfer under way."""

    def wait(self) -> object:
        """Block until it is done; RuntimeError when a member is gone. Tensors must not be touched before."""


class _Backend(Protocol):
    """What gloo and NCCL have in common; torch's own stubs do not declare it."""

    def alltoall_base(self, output: Tensor, input: Tensor, out_splits: list[int], in_splits: list[int]) -> Handle: ...
    def _allgather_base(self, output: Tensor, input: Tensor) -> Handle: ...
    def broadcast(self, tensor: Tensor, root: int) -> Handle: ...
    def send(self, tensors: list[Tensor], dst: int, tag: int) -> Handle: ...
    def recv(self, tensors: list[Tensor], src: int, tag: int) -> Handle: ...
    def abort(self) -> None: ...
    def _set_default_timeout(self, timeout: timedelta) -> None: ...


class _Done:
    def wait(self) -> bool:
        return True


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
    """A client of another worker's store; RuntimeError (DistNetworkError) when nobody listens there."""
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_BUILD)


class Group:
    """The members of one generation.

    Args:
        store: rank 0's store; None is enough when world is 1.
        rank, world: this member, and how many there are.
        device: where the tensors live; a CUDA device adds NCCL beside gloo.
        interface: address that gloo binds to.
        generation: its number; keys of different generations never meet in a store.
        waiting: called again and again until all members have arrived; raise in it to give up.

    Every transfer must be called by all members in the same order. RuntimeError when a member is gone; the group is of
    no use then: leave the `except` block (the traceback keeps the group alive), `close()` it, and only then wait for
    anybody.
    """

    def __init__(
        self,
        store: Store | None,
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
        if world == 1:
            return
        if store is None:
            raise ValueError("a group of several members needs a store")
        prefix = PrefixStore(f"generation-{generation}", store)
        _arrive(prefix, rank, world, waiting)
        self._gloo = _gloo(prefix, rank, world, interface)
        if device.type == "cuda":
            self._nccl = _nccl(PrefixStore("nccl", prefix), rank, world)

    def all_to_all(self, output: Tensor, input: Tensor, out_splits: Sequence[int], in_splits: Sequence[int]) -> Handle:
        """Send the r-th split of `input` to rank r, receive its split for us; 1-D contiguous, splits may be 0."""
        if self.world == 1:
            output.copy_(input)
            return _Done()
        return self._backend(input).alltoall_base(output, input, list(out_splits), list(in_splits))

    def all_gather(self, output: Tensor, input: Tensor) -> Handle:
        """`output` becomes everybody's `input` in rank order; 1-D contiguous, world × the length of `input`."""
        if self.world == 1:
            output.copy_(input)
            return _Done()
        return self._backend(input)._allgather_base(output, input)

    def broadcast(self, tensor: Tensor, src: int) -> Handle:
        """`tensor` becomes that of rank `src`; same shape and type everywhere, contiguous."""
        if self.world == 1:
            return _Done()
        return self._backend(tensor).broadcast(tensor, src)

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

    def send(self, tensor: Tensor, dst: int) -> Handle:
        """Give one member a contiguous tensor, which it must be receiving."""
        return self._backend(tensor).send([tensor], dst, 0)

    def recv(self, tensor: Tensor, src: int) -> Handle:
        """Fill a contiguous tensor with what rank `src` sends; shape and type must be the sender's."""
        return self._backend(tensor).recv([tensor], src, 0)

    def close(self) -> None:
        """Drop the group and close its sockets. May be called twice."""
        nccl, self._nccl, self._gloo = self._nccl, None, None
        if nccl is not None:
            nccl.abort()  # a destroy would wait for kernels that wait for a dead peer

    def _backend(self, tensor: Tensor) -> _Backend:
        backend = self._nccl if tensor.device.type == "cuda" else self._gloo
        if backend is None:
            raise RuntimeError(f"The group of generation {self.generation} has no link for {tensor.device} tensors.")
        return backend


def _arrive(store: Store, rank: int, world: int, waiting: Callable[[], None] | None) -> None:
    """Wait until every member is there.

    The rendezvous of a backend cannot be interrupted, and a member may take as long as an update takes to reach its
    boundary, or die before: so the wait is here, where it can be given up, and the backend's own wait is short.
    """
    store.set(f"here/{rank}", "")
    everybody = [f"here/{member}" for member in range(world)]
    while not store.check(everybody):
        if waiting is not None:
            waiting()
        time.sleep(_POLL)


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
