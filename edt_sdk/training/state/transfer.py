"""Move a captured state to other members: a head that describes it, then the memory of its large tensors.

`send` and `receive` move a state over any channel for tensors. Between members on the same host, `give` and `take`
avoid that: the head contains the addresses of the tensors, all takers read them there at the same time
(`foreign_memory.py`), and the giver waits. A taker that cannot read them is sent the tensors instead. Parameters and
buffers go straight into the taker's own memory. This module never decides which member gives, or when. That is
`member/loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor, nn

from edt_sdk.training.exchange.layout import is_dense
from edt_sdk.training.state import previous_version as former
from edt_sdk.training.state.foreign_memory import MemoryLocation, MemoryReader, SharedTensors
from edt_sdk.training.state.state import State, memory_of, own_tensors

# Bytes in a transfer: small enough that reading from one socket and writing to another overlap.
_CHUNK = 8 << 20
# Tensors up to this many bytes travel within the head, as each transfer costs a round trip.
SMALL = 1 << 15
# Bytes of the largest type of a tensor.
_LARGEST = 16
_SENT, _READ = 0, 1


class _Handle(Protocol):
    def wait(self) -> object: ...


class Peers(Protocol):
    """Declares the part of a `Group` that is used here."""

    def send(self, tensor: Tensor, dst: int) -> _Handle:
        """Send a tensor to a member."""

    def recv(self, tensor: Tensor, src: int) -> _Handle:
        """Receive a tensor from a member."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Describes the type and layout of a tensor. `stride` is dense, in any order of dimensions."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    cpu: bool


@dataclass(frozen=True, slots=True)
class _Head:
    """Describes the tensors, and is sent before them. Parameters and buffers, which have names, come first.

    `small` is the memory of the small tensors. `location` is where the large ones lie, None when they will be sent.
    """

    names: tuple[str, ...]
    specs: tuple[Spec, ...]
    rest: bytes
    small: bytes
    location: MemoryLocation | None = None


def _encoded(value: Any) -> str:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    raise NotImplementedError


def _decoded(kind: type, value: Any) -> Any:
    dtype = getattr(torch, value, None)
    if not isinstance(dtype, kind):
        raise ValueError(f"torch has no type {value!r}")
    return dtype


_encoder = msgspec.msgpack.Encoder(enc_hook=_encoded)
_decoder = msgspec.msgpack.Decoder(_Head, dec_hook=_decoded)
# The first byte of a pickle, which would be an empty map in a head of today.
_PICKLE = b"\x80"


def send(peers: Peers, takers: Sequence[int], state: State) -> None:
    """Send a captured state to some members at once. They must be receiving."""
    tensors = _tensors(state)
    _send_head(peers, takers, _head(state, tensors))
    _send_large(peers, takers, tensors)


def receive(peers: Peers, src: int, model: nn.Module, device: torch.device, *, staged: bool) -> State:
    """Return the state that member `src` sends. Tensors that are not on the CPU there get to `device`.

    `staged`: everything arrives in new memory, and the model stays as it is until `restore`. Otherwise parameters and
    buffers arrive in the model's own memory where they fit, and the model is unusable if this fails halfway.
    """
    arriving = _Arriving(_receive_head(peers, src), model, device, staged=staged, space=[])
    _receive_large(peers, src, arriving)
    return arriving.state


def give(peers: Peers, takers: Sequence[int], state: State) -> None:
    """Send a state to members that call `take`, which may read the tensors in this process's memory instead.

    The tensors must not change before this returns.
    """
    tensors = _tensors(state)
    large = _large(tensors)
    # process_vm_readv reads host memory only (decision 025).
    if not large or any(tensor.device.type != "cpu" for tensor in large):
        send(peers, takers, state)
        return
    shown = SharedTensors(large)
    _send_head(peers, takers, _head(state, tensors, shown.location))
    answers = [(taker, torch.empty(1, dtype=torch.uint8)) for taker in takers]
    handles = [peers.recv(answer, taker) for taker, answer in answers]
    # All answers first: a taker that reads answers when it is done, and needs the memory unchanged until then.
    for handle in handles:
        handle.wait()
    _send_large(peers, [taker for taker, answer in answers if int(answer) == _SENT], tensors)


def take(
    peers: Peers, src: int, model: nn.Module, device: torch.device, *, staged: bool, space: list[Tensor] | None = None
) -> State:
    """Return the state that member `src` gives, as `receive` does. RuntimeError or PeerLost when the giver is gone.

    The tensors in `space` may become part of the optimizer's state instead of new ones.
    """
    head = _receive_head(peers, src)
    arriving = _Arriving(head, model, device, staged=staged, space=space or [])
    if head.location is None:
        _receive_large(peers, src, arriving)
        return arriving.state
    try:
        if any(tensor.device.type != "cpu" for tensor in arriving.large):
            raise OSError("tensors of a GPU are not read from another process's memory")
        reader = MemoryReader(head.location)
    except OSError:
        peers.send(torch.tensor([_SENT], dtype=torch.uint8), src).wait()
        _receive_large(peers, src, arriving)
    else:
        reader.read(arriving.large)
        peers.send(torch.tensor([_READ], dtype=torch.uint8), src).wait()
    return arriving.state


class _Arriving:
    """Holds an arriving state. Its small tensors are already filled, `large` is the memory of the others in order."""

    def __init__(
        self, head: _Head, model: nn.Module, device: torch.device, *, staged: bool, space: list[Tensor]
    ) -> None:
        # A member with a state keeps it until the received one is complete (decision 010).
        there = {} if staged else dict(own_tensors(model))
        spare = [(_spec(tensor), tensor) for tensor in space]
        small = torch.frombuffer(bytearray(head.small), dtype=torch.uint8) if head.small else None
        tensors: list[Tensor] = []
        self.large: list[Tensor] = []
        start = 0
        for number, spec in enumerate(head.specs):
            of_model = number < len(head.names)
            own = there.get(head.names[number]) if of_model else None
            fits = own is not None and is_dense(own) and _spec(own) == spec
            # Parameters and buffers take no reserved space: it belongs to the optimizer's state (`preallocation.py`).
            tensor = own if own is not None and fits else _somewhere([] if of_model else spare, spec, device)
            tensors.append(tensor)
            memory = memory_of(tensor)
            if len(memory) > SMALL:
                self.large.append(memory)
            elif len(memory) and small is not None:
                memory.copy_(small[start : start + len(memory)])
                start += len(memory)
        own_ones = dict(zip(head.names, tensors, strict=False))
        self.state = State(own_ones, head.rest, tensors[len(head.names) :])


def _tensors(state: State) -> list[Tensor]:
    """Return all tensors of a state without gaps in memory, parameters and buffers first."""
    return [_dense(tensor) for tensor in (*state.own.values(), *state.tensors)]


def _large(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [memory_of(tensor) for tensor in tensors if tensor.nbytes > SMALL]


def _head(state: State, tensors: Sequence[Tensor], location: MemoryLocation | None = None) -> _Head:
    small = b"".join(memory_of(tensor).cpu().numpy().tobytes() for tensor in tensors if tensor.nbytes <= SMALL)
    return _Head(tuple(state.own), tuple(_spec(tensor) for tensor in tensors), state.rest, small, location)


def _send_head(peers: Peers, takers: Sequence[int], head: _Head) -> None:
    data = _encoder.encode(head)
    # What is kept in a file can be used there if it begins at a multiple of its type's size. The end of
    # `small` is not read, and its length may take more bytes with it.
    while missing := -(len(data) + 8) % _LARGEST:
        head = replace(head, small=head.small + bytes(missing))
        data = _encoder.encode(head)
    # The length goes first, because `recv` needs a tensor of the right size.
    length = torch.tensor([len(data)]).view(torch.uint8)
    content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    for handle in [peers.send(part, taker) for part in (length, content) for taker in takers]:
        handle.wait()


def _receive_head(peers: Peers, src: int) -> _Head:
    length = torch.zeros(8, dtype=torch.uint8)
    peers.recv(length, src).wait()
    content = torch.empty(int(length.view(torch.int64)), dtype=torch.uint8)
    peers.recv(content, src).wait()
    data = content.numpy().tobytes()
    head: _Head = former.loads(data) if data.startswith(_PICKLE) else _decoder.decode(data)
    return head


def _send_large(peers: Peers, takers: Sequence[int], tensors: Sequence[Tensor]) -> None:
    parts = [part for memory in _large(tensors) for part in torch.split(memory, _CHUNK)]
    # All transfers start before the first wait, so that the takers receive at the same time.
    for handle in [peers.send(part, taker) for part in parts for taker in takers]:
        handle.wait()


def _receive_large(peers: Peers, src: int, arriving: _Arriving) -> None:
    for handle in [peers.recv(part, src) for memory in arriving.large for part in torch.split(memory, _CHUNK)]:
        handle.wait()


def _spec(tensor: Tensor) -> Spec:
    return Spec(tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device.type == "cpu")


def _somewhere(spare: list[tuple[Spec, Tensor]], spec: Spec, device: torch.device) -> Tensor:
    """Return a spare tensor that fits, else a new one."""
    for number, (form, tensor) in enumerate(spare):
        if form == spec:
            del spare[number]
            return tensor
    where = torch.device("cpu") if spec.cpu else device
    return torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype, device=where)


def _dense(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy, without gaps and overlaps in memory. Channels-last stays channels-last."""
    value = tensor.detach().resolve_conj().resolve_neg()
    return value if is_dense(value) else value.contiguous()
