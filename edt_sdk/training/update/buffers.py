"""The model's buffers during one update: every shard starts from the same ones, and what a shard changed is seen.

Changes are found by comparing bits with a copy from the start of the update, not by version counters, which do not see
`buffer.data`, nor by identity, since forward passes assign new tensors. Small buffers are compared many at once: a
model with batch norm has hundreds. A non-persistent buffer that gets another shape is a cache (of masks, of rotary
angles): it is left to its model and is nobody's state. Never communicates.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.header import Bits
from edt_sdk.training.exchange.layout import Buffer, Layout, real

log = logging.getLogger(__name__)

# Elements up to which copying a buffer costs less than a call of its own.
_SMALL = 1 << 14
_WORD = 8
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Buffers:
    """The buffers of a layout: `floats` first, then `others`, in one list."""

    def __init__(self, layout: Layout) -> None:
        self._places: tuple[Buffer, ...] = (*layout.floats, *layout.others)
        self._caches: set[int] = set()
        self._originals: list[Tensor] = []
        self._start: list[Tensor] = []
        self._together: list[_Together] = []
        self._large: list[int] = []
        self._cells = [(place.module._buffers, place.key) for place in self._places]
        self._shapes: list[torch.Size] = []
        self._dtypes: list[torch.dtype] = []
        self._found: Bits | None = None  # which differ, where that is known
        self._so_far = np.zeros(len(self._places), dtype=np.bool_)

    @torch.no_grad()
    def save(self) -> None:
        """Take a copy: what the model holds now is what every shard starts from."""
        if not self._places:
            return
        self._originals = self._now()
        if not self._start:
            self._start = [tensor.detach().clone() for tensor in self._originals]
            self._sort()
        numbers = [number for number in range(len(self._places)) if number not in self._caches]
        _copy([self._start[n] for n in numbers], [self._originals[n] for n in numbers])
        self._found = np.zeros(len(self._places), dtype=np.bool_)
        self._so_far = self._found.copy()

    def lend(self) -> None:
        """The model or other code of the user's runs from now on: what became of them has to be looked at."""
        self._found = None

    @torch.no_grad()
    def changed(self) -> Bits:
        """Which buffers differ from the copy in any bit: bool [floats + others]."""
        if not self._places:
            return self._so_far
        tensors = self._now()
        if self._shapes != [tensor.shape for tensor in tensors] or self._dtypes != [tensor.dtype for tensor in tensors]:
            for number, (tensor, start) in enumerate(zip(tensors, self._start, strict=True)):
                if (tensor.shape != start.shape or tensor.dtype != start.dtype) and number not in self._caches:
                    self._take_for_cache(number, tensor, start)
        self._found = self._differing(tensors)
        return self._found

    def changed_so_far(self) -> Bits:
        """Which buffers any shard has changed since `save`, the one that has just run included; as `changed`.

        Where all have been changed nothing needs to be compared: the update will change them, whatever this shard did.
        """
        if not self._places:
            return self._so_far
        if not self._so_far.all():
            self._so_far |= self.changed()
        self._found = self._so_far.copy()
        return self._found

    def values(self, numbers: range) -> list[Tensor]:
        """The tensors the model holds now; for a cache the copy from the start, whose shape is known."""
        if not numbers:
            return []
        tensors = self._now()[numbers.start : numbers.stop]
        if not self._caches and not any(tensor.requires_grad for tensor in tensors):
            return tensors
        return [
            self._start[n] if n in self._caches else tensor.detach() for n, tensor in zip(numbers, tensors, strict=True)
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Put every buffer back, object and bits, to what it was at the start of the update."""
        if not self._places:
            return
        found = self._found
        for number, ((buffers, key), original) in enumerate(zip(self._cells, self._originals, strict=True)):
            if buffers.get(key) is not original and number not in self._caches:
                buffers[key] = original
                found = None  # it was about another tensor
        # Only what differs is written: a buffer may be an expanded view, which nothing can be copied into.
        wrong = np.flatnonzero(self._differing(self._originals) if found is None else found)
        _copy([self._originals[n] for n in wrong], [self._start[n] for n in wrong])
        self._found = np.zeros(len(self._places), dtype=np.bool_)

    @torch.no_grad()
    def commit(self, numbers: Sequence[int], values: Sequence[Tensor]) -> None:
        """Write what the update made of the changed buffers. Call `restore` first."""
        for number, value in zip(numbers, values, strict=True):
            self._originals[number].copy_(value)

    def _now(self) -> list[Tensor]:
        """The tensors the model holds."""
        found = [tensor for buffers, key in self._cells if (tensor := buffers.get(key)) is not None]
        return found if len(found) == len(self._cells) else [_there(place) for place in self._places]

    def _differing(self, tensors: Sequence[Tensor]) -> Bits:
        """Which of these differ from the copies in any bit: bool [floats + others]; caches do not."""
        found = np.zeros(len(tensors), dtype=np.bool_)
        for together in self._together:
            found[together.numbers] = together.differing(tensors)
        for number in self._large:
            tensor = tensors[number]
            found[number] = tensor.numel() and not torch.equal(_bits(tensor), _bits(self._start[number]))
        return found

    def _sort(self) -> None:
        """Which are compared many at once, and which one by one."""
        small: dict[torch.device, list[int]] = {}
        self._large = []
        for number, tensor in enumerate(self._start):
            if number in self._caches:
                continue
            if 0 < tensor.numel() <= _SMALL:
                small.setdefault(tensor.device, []).append(number)
            else:
                self._large.append(number)
        self._shapes = [tensor.shape for tensor in self._start]
        self._dtypes = [tensor.dtype for tensor in self._start]
        self._together = [_Together(numbers, self._start) for numbers in small.values()]
        for together in self._together:
            for number, copy in zip(together.numbers, together.copies, strict=True):
                self._start[number] = copy

    def _take_for_cache(self, number: int, tensor: Tensor, start: Tensor) -> None:
        place = self._places[number]
        if place.persistent:
            raise Unprocessable(
                f"The buffer {place.name} changed its shape from {tuple(start.shape)} to {tuple(tensor.shape)} "
                "during a training step.",
                hint="Give it its final shape before train(), or persistent=False if it is a mere cache.",
                field="model",
            )
        log.info("The buffer %s changes its shape: taken for a cache and left to the model.", place.name)
        self._caches.add(number)
        self._sort()


class _Together:
    """Small buffers of one device, whatever their kinds of number, compared as words of one piece of memory.

    Args:
        numbers: which.
        like: all buffers; the copies begin with the values of these.

    Attributes:
        numbers: which.
        copies: what they are compared with, in the order of `numbers`.
    """

    def __init__(self, numbers: list[int], like: Sequence[Tensor]) -> None:
        self.numbers = numbers
        tensors = [like[number] for number in numbers]
        words = [-(-tensor.numel() * tensor.element_size() // _WORD) for tensor in tensors]
        self._begins = [0, *accumulate(words[:-1])]
        # What lies between them stays zero in both.
        self._before = torch.zeros(sum(words), dtype=torch.int64, device=tensors[0].device)
        self._now = torch.zeros_like(self._before)
        self.copies = _cut(self._before, self._begins, tensors)
        self._values = _cut(self._now, self._begins, tensors)
        _copy(self.copies, tensors)

    def differing(self, tensors: Sequence[Tensor]) -> Bits:
        """Which differ from their copies in any bit: bool [numbers]."""
        _copy(self._values, [tensors[number] for number in self.numbers])
        unequal = torch.ne(self._now, self._before).cpu().numpy()
        found: Bits = np.logical_or.reduceat(unequal, self._begins)
        return found


def _cut(memory: Tensor, begins: Sequence[int], like: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of these kinds and shapes within the memory, each from the word where it begins."""
    return [
        memory[begin:].view(torch.uint8)[: tensor.numel() * tensor.element_size()].view(tensor.dtype).view(tensor.shape)
        for begin, tensor in zip(begins, like, strict=True)
    ]


def _there(place: Buffer) -> Tensor:
    tensor = place.get()
    if tensor is None:
        raise Unprocessable(
            f"The buffer {place.name} was removed during the training.",
            hint="Keep the buffers a model has when train() is called; set their values instead.",
            field="model",
        )
    return tensor


def _copy(to: list[Tensor], values: list[Tensor]) -> None:
    if to:
        torch._foreach_copy_(to, values)


def _bits(tensor: Tensor) -> Tensor:
    """The same memory as whole numbers: NaN equals itself there, and 0.0 differs from −0.0."""
    value = real(tensor.detach())
    return value.view(_BITS[value.dtype.itemsize]) if value.is_floating_point() else value
