"""Define the flat vector of an update: the place of each gradient and each floating-point buffer.

Entries are keyed by parameter, never by bucket. First come the parameters the optimizer owns, in the order of its
groups, each once, without those that need no gradient. Then come all floating-point buffers of the model. Entries with
the same number type form a section. Every entry starts on a 64-byte boundary, and no offset depends on the number of
workers. Half precision is summed in float32. Integer buffers are listed too (`others`): they cannot be averaged, so
shard 0's values are used. The module owns no values except the vectors it creates, and never communicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from edt_sdk.schemas.errors import Unprocessable

ALIGNMENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Locates a buffer in its module. A forward pass may put another tensor object there."""

    module: nn.Module
    key: str
    name: str
    persistent: bool

    def get(self) -> Tensor | None:
        """Return the tensor that is there now."""
        return self.module._buffers.get(self.key)

    def put(self, tensor: Tensor) -> None:
        """Put `tensor` there."""
        self.module._buffers[self.key] = tensor


@dataclass(frozen=True, slots=True)
class LayoutEntry:
    """Locates the numbers of an entry in `section`, from element `offset`.

    Complex numbers are pairs, a last dimension of 2.
    """

    section: int
    offset: int
    shape: torch.Size
    strides: tuple[int, ...]
    numel: int


class Flat:
    """Holds one vector of a layout: a 1-D tensor per section and a view per entry. `a += b` adds whole sections.

    `memory` is the tensor the sections were cut from, if there is one, and `start` its offset in this process's window.
    """

    __slots__ = ("_memory", "_users", "sections", "start", "views")

    def __init__(
        self,
        sections: tuple[Tensor, ...],
        entries: tuple[LayoutEntry, ...],
        memory: Tensor | None = None,
        start: int | None = None,
    ) -> None:
        self.sections = sections
        self.start = start
        self._memory = memory  # counted as a user below, so it has to stay
        self.views = tuple(
            sections[e.section].as_strided(e.shape, e.strides, sections[e.section].storage_offset() + e.offset)
            for e in entries
        )  # as_strided and not view: a gradient has the memory format of its parameter
        self._users = self._count_users()

    @property
    def alone(self) -> bool:
        """Return False while other code holds a tensor over this memory, such as an optimizer that keeps a gradient."""
        return self._count_users() == self._users

    def _count_users(self) -> list[int]:
        return [torch._C._storage_Use_Count(s.untyped_storage()._cdata) for s in self.sections]

    def __iadd__(self, other: Flat) -> Flat:
        for mine, theirs in zip(self.sections, other.sections, strict=True):
            mine.add_(theirs)
        return self


class Layout:
    """Defines the entries of a model and its optimizer.

    Args:
        model: all parameters must have a shape (run a batch through lazy modules first).
        optimizer: must own at least one parameter that needs a gradient.
        shards: V, the largest number of slices a section will be cut into.

    Attributes:
        parameters: the parameters, in entry order.
        names: a name for each parameter, for messages.
        floats: floating-point and complex buffers, in entry order after the parameters.
        others: all other buffers.
        entries: one per parameter, then one per float buffer.
        lengths: elements of each section without its padding, whole multiples of 64 bytes.
        nbytes: total bytes of a vector's sections, padding included.
        on_cpu: whether all sections are in host memory.

    Raises:
        Unprocessable: a parameter or buffer is not initialised yet, or there is nothing to train.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, shards: int = 1) -> None:
        owned = _owned(model, optimizer)
        self.names = tuple(name for name, _ in owned)
        self.parameters = tuple(parameter for _, parameter in owned)
        buffers = list(_buffers(model))
        self.floats = tuple(b for b, t in buffers if t.is_floating_point() or t.is_complex())
        self.others = tuple(b for b, t in buffers if not (t.is_floating_point() or t.is_complex()))
        values: list[Tensor] = [*self.parameters, *(t for _, t in buffers if t.is_floating_point() or t.is_complex())]
        self._kinds: list[tuple[torch.dtype, torch.device]] = []
        lengths: list[int] = []
        for value in values:
            kind = _kind(value)
            if kind not in self._kinds:
                self._kinds.append(kind)
                lengths.append(0)
        entries: dict[int, LayoutEntry] = {}
        # Buffers come first: vectors are sent from the end to the start, and a buffer is not final before the end of
        # the backward pass.
        numbers = range(len(values))
        for number in (*numbers[len(self.parameters) :], *numbers[: len(self.parameters)]):
            kind = _kind(values[number])
            section = self._kinds.index(kind)
            shape, strides = _shape_and_strides(values[number])
            entries[number] = LayoutEntry(section, lengths[section], shape, strides, shape.numel())
            # Matrix kernels may choose another path for other alignments, which would change bits.
            step = ALIGNMENT // kind[0].itemsize
            lengths[section] += -(-shape.numel() // step) * step
        self.entries = tuple(entries[number] for number in numbers)
        self.lengths = tuple(lengths)
        self._room = [
            length + shards * (ALIGNMENT // dtype.itemsize)
            for (dtype, _), length in zip(self._kinds, lengths, strict=True)
        ]
        self._sizes = [length * dtype.itemsize for (dtype, _), length in zip(self._kinds, self._room, strict=True)]
        self.nbytes = sum(self._sizes)
        self.on_cpu = all(device.type == "cpu" for _, device in self._kinds)
        self._spans: dict[tuple[int, int], list[tuple[int, slice]]] = {}

    def sections(self, memory: Tensor) -> tuple[Tensor, ...]:
        """Cut uint8 [nbytes] of host memory into the sections of a vector."""
        parts = torch.split(memory, self._sizes)
        return tuple(part.view(dtype) for part, (dtype, _) in zip(parts, self._kinds, strict=True))

    def vector(self) -> Flat:
        """Create a vector, not initialised, with padding for as many equal slices as there are shards."""
        sections = []
        for (dtype, device), length in zip(self._kinds, self._room, strict=True):
            sections.append(torch.empty(length, dtype=dtype, device=device))
            if sections[-1].data_ptr() % ALIGNMENT:
                raise RuntimeError("This build of torch does not align its tensors to 64 bytes.")
        return Flat(tuple(sections), self.entries)

    def zeros(self) -> Flat:
        """Create a vector of zeros. The gaps between the entries stay zero through every sum."""
        vector = self.vector()
        for section in vector.sections:
            section.zero_()
        return vector

    def within(self, memory: Tensor, start: int) -> Flat:
        """Create a vector in uint8 [nbytes] of zeroed host memory that starts at `start` of a window."""
        return Flat(self.sections(memory), self.entries, memory, start)

    def pieces(self, section: int, world: int, limit: int) -> Iterator[tuple[int, int]]:
        """Cut a section into pieces of about `limit` bytes with `world` equal slices. Yield (start, length of a slice).

        Both count elements and are whole multiples of 64 bytes. The last slices reach into the padding.
        """
        step = ALIGNMENT // self._kinds[section][0].itemsize
        most = max(1, limit // (ALIGNMENT * world)) * step
        for start in range(0, self.lengths[section], most * world):
            left = self.lengths[section] - start
            yield start, min(most, -(-left // (step * world)) * step)

    def spans(self, world: int, limit: int) -> list[tuple[int, slice]]:
        """Return the pieces of all sections as (section, elements) in the order they are sent, last ones first."""
        # Cached, since every update asks for the same spans.
        found = self._spans.get((world, limit))
        if found is None:
            found = self._spans[world, limit] = [
                (section, slice(start, start + length * world))
                for section in range(len(self.lengths))
                for start, length in self.pieces(section, world, limit)
            ][::-1]
        return found

    def slices(self, memory: Tensor, spans: Iterable[tuple[int, slice]], count: int) -> tuple[Tensor, ...]:
        """Cut one of `count` equal slices of each of these spans, without gaps, out of host memory (uint8)."""
        found, start = [], 0
        for section, span in spans:
            dtype = self._kinds[section][0]
            nbytes = (span.stop - span.start) // count * dtype.itemsize
            found.append(memory[start : start + nbytes].view(dtype))
            start += nbytes
        return tuple(found)

    def pieces_of_entries(self, world: int, limit: int) -> tuple[list[list[int]], list[int]]:
        """Return the pieces (numbers in `spans`) each entry touches, and how many entries touch each piece."""
        spans = self.spans(world, limit)
        of_entries = [
            [
                number
                for number, (section, span) in enumerate(spans)
                if section == e.section and e.offset < span.stop and span.start < e.offset + e.numel
            ]
            for e in self.entries
        ]
        counts = [0] * len(spans)
        for pieces in of_entries:
            for number in pieces:
                counts[number] += 1
        return of_entries, counts


def real(tensor: Tensor) -> Tensor:
    """Return complex numbers as pairs of real numbers, other tensors unchanged."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _owned(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[tuple[str, Tensor]]:
    names = {id(p): name for name, p in model.named_parameters()}
    lazy = [name for name, p in model.named_parameters() if is_lazy(p)]
    if lazy:
        raise Unprocessable(
            f"The parameter {lazy[0]} is not initialised yet (a lazy module).",
            hint="Run one batch through the model before FabricModel, then make the optimizer.",
            field="model",
        )
    found: dict[int, tuple[str, Tensor]] = {}
    for g, group in enumerate(optimizer.param_groups):
        for i, parameter in enumerate(group["params"]):
            if parameter.requires_grad:
                found[id(parameter)] = (names.get(id(parameter), f"param_groups[{g}][{i}]"), parameter)
    if not found:
        raise Unprocessable(
            "The optimizer has no parameter that needs a gradient.",
            hint="Make it over model.parameters(), or over the parameters that require a gradient.",
            field="optimizer",
        )
    return list(found.values())


def _buffers(model: nn.Module) -> Iterator[tuple[Buffer, Tensor]]:
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for key, tensor in module._buffers.items():
            if tensor is None or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            name = f"{prefix}.{key}" if prefix else key
            if is_lazy(tensor):
                raise Unprocessable(
                    f"The buffer {name} is not initialised yet (a lazy module).",
                    hint="Run one batch through the model before FabricModel.",
                    field="model",
                )
            yield Buffer(module, key, name, key not in module._non_persistent_buffers_set), tensor


def _kind(tensor: Tensor) -> tuple[torch.dtype, torch.device]:
    dtype = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    return (torch.float32 if dtype.itemsize < 4 else dtype), tensor.device


def _shape_and_strides(tensor: Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    """Return the tensor's own strides if it fills its memory without gaps (channels-last), else contiguous strides."""
    value = real(tensor.detach())
    return value.shape, (value if is_dense(value) else torch.empty(value.shape, device="meta")).stride()


def is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor fills its memory without gaps and overlaps, in any order of dimensions."""
    # A dimension of size 1 may have any stride, so it shows nothing about gaps.
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True
