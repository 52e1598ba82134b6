"""Synchronize the buffers that cannot be averaged, such as counters: every member takes the values of shard 0.

Small buffers travel in the records that members exchange in every step. Large buffers travel only after a change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.header import Summary
from edt_sdk.training.exchange.layout import Layout

_SMALL = 1024  # bytes


class Others:
    """Synchronizes the non-averaged buffers of a model. Buffers are identified by their numbers in the layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        sizes = [tensor.nbytes for tensor in self._tensors()]
        self._small = tuple(number for number, size in enumerate(sizes) if size <= _SMALL)
        self._large = tuple(number for number in range(len(sizes)) if number not in self._small)
        self.small_bytes = sum(sizes[number] for number in self._small)

    def pack(self, values: Sequence[Tensor]) -> bytes:
        """Pack the small buffers among shard 0's values for the record of rank 0."""
        return b"".join(_to_bytes(values[number]).cpu().numpy().tobytes() for number in self._small)

    def receive(self, group: Group, summary: Summary, values: Sequence[Tensor]) -> dict[int, Tensor]:
        """Return the new values of the buffers that shard 0 changed, by number. Every member must call this.

        `values` are shard 0's buffers, needed on rank 0, which holds that shard.
        """
        # A single member has the values already, so it packs and decodes nothing.
        if group.world == 1:
            return {number: values[number] for number in np.flatnonzero(summary.changed_others).tolist()}
        if not summary.changed_others.any():
            return {}
        tensors = self._tensors()
        found: dict[int, Tensor] = {}
        start = 0
        for number in self._small:
            stop = start + tensors[number].nbytes
            if summary.changed_others[number]:
                content = torch.frombuffer(bytearray(summary.small[start:stop]), dtype=torch.uint8)
                found[number] = content.view(tensors[number].dtype).view(tensors[number].shape)
            start = stop
        # Every rank reads the same summary, so all ranks call the same broadcasts in the same order.
        for number in self._large:
            if summary.changed_others[number]:
                # A clone: the transfer must not write into the model before the update is committed.
                value = values[number] if group.rank == 0 else tensors[number].detach()
                found[number] = value.clone(memory_format=torch.contiguous_format)
                group.broadcast(_to_bytes(found[number]), 0).wait()
        return found

    def _tensors(self) -> list[Tensor]:
        return [tensor for place in self._layout.others if (tensor := place.get()) is not None]


def _to_bytes(tensor: Tensor) -> Tensor:
    """Return the memory of a contiguous tensor as uint8 [bytes], or of a contiguous copy."""
    return tensor.contiguous().view(-1).view(torch.uint8)
