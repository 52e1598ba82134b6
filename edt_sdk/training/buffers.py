"""The model's buffers during one update: every shard starts from the same ones, and what a shard changed is seen.

Changes are found by comparing bits with a copy from the start of the update, not by version counters, which do not see
`buffer.data`, nor by identity, since forward passes assign new tensors. Small buffers are compared many at once: a
model with batch norm has hundreds. A non-persistent buffer that gets another shape is a cache (of masks, of rotary
angles): it is left to its model and is nobody's state. Never communicates.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.header import Bits
from edt_sdk.training.layout import Buffer, Layout, real

log = logging.getLogger(__name__)

# Elements up to which copying a buffer costs less than a call of its own.
_SMALL = 1 << 14
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Buffers:
    """The buffers of a layout: `floats` first, then `others`, in one list."""

    def __init__(self, layout: Layout) -> None:
        self._places: tuple[Buffer, ...] = (*layout.floats, *layout.others)
        self._caches: set[int] = set()
        self._originals: list[Tensor] = []
        self._start: list[Tensor] = []
        self._batches: list[_Batch] = []
        self._large: list[int] = []

    @torch.no_grad()
    def save(self) -> None:
        """Take a copy: what the model holds now is what every shard starts from."""
        self._originals = [_there(place) for place in self._places]
        if not self._start:
            self._start = [tensor.detach().clone() for tensor in self._originals]
            self._sort()
        numbers = [number for number in range(len(self._places)) if number not in self._caches]
        _copy([self._start[n] for n in numbers], [self._originals[n] for n in numbers])
        for batch in self._batches:
            batch.remember(self._start)

    @torch.no_grad()
    def changed(self) -> Bits:
        """Which buffers differ from the copy in any bit: bool [floats + others]."""
        tensors = [_there(place) for place in self._places]
        for number, (tensor, start) in enumerate(zip(tensors, self._start, strict=True)):
            if (tensor.shape != start.shape or tensor.dtype != start.dtype) and number not in self._caches:
                self._take_for_cache(number, tensor, start)
        return self._differing(tensors)

    def values(self, numbers: range) -> list[Tensor]:
        """The tensors the model holds now; for a cache the copy from the start, whose shape is known."""
        return [self._start[n] if n in self._caches else _there(self._places[n]).detach() for n in numbers]

    @torch.no_grad()
    def restore(self) -> None:
        """Put every buffer back, object and bits, to what it was at the start of the update."""
        for number, (place, original) in enumerate(zip(self._places, self._originals, strict=True)):
            if place.get() is not original and number not in self._caches:
                place.put(original)
        # Only what differs is written: a buffer may be an expanded view, which nothing can be copied into.
        wrong = np.flatnonzero(self._differing(self._originals))
        _copy([self._originals[n] for n in wrong], [self._start[n] for n in wrong])

    @torch.no_grad()
    def commit(self, numbers: Sequence[int], values: Sequence[Tensor]) -> None:
        """Write what the update made of the changed buffers. Call `restore` first."""
        for number, value in zip(numbers, values, strict=True):
            self._originals[number].copy_(value)

    def _differing(self, tensors: Sequence[Tensor]) -> Bits:
        """Which of these differ from the copies in any bit: bool [floats + others]; caches do not."""
        found = np.zeros(len(tensors), dtype=np.bool_)
        for batch in self._batches:
            found[batch.numbers] = batch.differing(tensors)
        for number in self._large:
            tensor = tensors[number]
            found[number] = tensor.numel() and not torch.equal(_bits(tensor), _bits(self._start[number]))
        return found

    def _sort(self) -> None:
        """Which are compared many at once, and which one by one."""
        small: dict[tuple[torch.dtype, torch.device], list[int]] = {}
        self._large = []
        for number, tensor in enumerate(self._start):
            if number in self._caches:
                continue
            if 0 < tensor.numel() <= _SMALL:
                small.setdefault((tensor.dtype, tensor.device), []).append(number)
            else:
                self._large.append(number)
        self._batches = [_Batch(numbers, self._start) for numbers in small.values()]
        for batch in self._batches:
            batch.remember(self._start)

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


class _Batch:
    """Small buffers of one dtype and device, compared in one go.

    Attributes:
        numbers: which.
    """

    def __init__(self, numbers: list[int], like: Sequence[Tensor]) -> None:
        self.numbers = numbers
        lengths = [real(like[number]).numel() for number in numbers]
        self._begins = np.cumsum([0, *lengths[:-1]])
        self._start = torch.empty(0)

    def remember(self, tensors: Sequence[Tensor]) -> None:
        """What these hold now is compared with from now on."""
        self._start = self._flat(tensors)

    def differing(self, tensors: Sequence[Tensor]) -> Bits:
        """Which differ in any bit: bool [numbers]."""
        unequal = (self._flat(tensors) != self._start).reshape(-1).cpu().numpy()
        found: Bits = np.logical_or.reduceat(unequal, self._begins)
        return found

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        flat: Tensor = _flatten_dense_tensors([tensors[number] for number in self.numbers])  # type: ignore[no-untyped-call]
        return _bits(flat)


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
