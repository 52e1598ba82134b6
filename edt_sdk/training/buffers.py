"""The model's buffers during one update: every shard starts from the same ones, and what a shard changed is seen.

Changes are found by comparing bits with a copy from the start of the update, not by version counters, which do not see
`buffer.data`, nor by identity, since forward passes assign new tensors. A non-persistent buffer that gets another shape
is a cache (of masks, of rotary angles): it is left to its model and is nobody's state. Never communicates.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.layout import Buffer, Layout, real

log = logging.getLogger(__name__)

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Buffers:
    """The buffers of a layout: `floats` first, then `others`, in one list."""

    def __init__(self, layout: Layout) -> None:
        self._places: tuple[Buffer, ...] = (*layout.floats, *layout.others)
        self._caches: set[int] = set()
        self._originals: list[Tensor] = []
        self._start: list[Tensor] = []

    @torch.no_grad()
    def save(self) -> None:
        """Take a copy: what the model holds now is what every shard starts from."""
        self._originals = [_there(place) for place in self._places]
        if not self._start:
            self._start = [tensor.detach().clone() for tensor in self._originals]
        for number, (start, tensor) in enumerate(zip(self._start, self._originals, strict=True)):
            if number not in self._caches:
                start.copy_(tensor)

    @torch.no_grad()
    def changed(self) -> Tensor:
        """Which buffers differ from the copy in any bit: bool [floats + others]."""
        found = []
        for number, (place, start) in enumerate(zip(self._places, self._start, strict=True)):
            tensor = _there(place)
            if number in self._caches or self._is_cache(number, place, tensor, start):
                found.append(torch.zeros((), dtype=torch.bool, device=start.device))
            else:
                found.append((_bits(tensor) != _bits(start)).any())
        return torch.stack(found) if found else torch.zeros(0, dtype=torch.bool)

    def values(self, numbers: range) -> list[Tensor]:
        """The tensors the model holds now; for a cache the copy from the start, whose shape is known."""
        return [self._start[n] if n in self._caches else _there(self._places[n]).detach() for n in numbers]

    @torch.no_grad()
    def restore(self) -> None:
        """Put every buffer back, object and bits, to what it was at the start of the update."""
        for number, (place, original, start) in enumerate(zip(self._places, self._originals, self._start, strict=True)):
            if number in self._caches:
                continue
            if place.get() is not original:
                place.put(original)
            # Only what differs is written: a buffer may be an expanded view, which nothing can be copied into.
            if (_bits(original) != _bits(start)).any():
                original.copy_(start)

    @torch.no_grad()
    def commit(self, numbers: Sequence[int], values: Sequence[Tensor]) -> None:
        """Write what the update made of the changed buffers. Call `restore` first."""
        for number, value in zip(numbers, values, strict=True):
            self._originals[number].copy_(value)

    def _is_cache(self, number: int, place: Buffer, tensor: Tensor, start: Tensor) -> bool:
        if tensor.shape == start.shape and tensor.dtype == start.dtype:
            return False
        if place.persistent:
            raise Unprocessable(
                f"The buffer {place.name} changed its shape from {tuple(start.shape)} to {tuple(tensor.shape)} "
                "during a training step.",
                hint="Give it its final shape before train(), or persistent=False if it is a mere cache.",
                field="model",
            )
        log.info("The buffer %s changes its shape: taken for a cache and left to the model.", place.name)
        self._caches.add(number)
        return True


def _there(place: Buffer) -> Tensor:
    tensor = place.get()
    if tensor is None:
        raise Unprocessable(
            f"The buffer {place.name} was removed during the training.",
            hint="Keep the buffers a model has when train() is called; set their values instead.",
            field="model",
        )
    return tensor


def _bits(tensor: Tensor) -> Tensor:
    """The same memory as whole numbers: NaN equals itself there, and 0.0 differs from −0.0."""
    value = real(tensor.detach())
    return value.view(_BITS[value.dtype.itemsize]) if value.is_floating_point() else value
