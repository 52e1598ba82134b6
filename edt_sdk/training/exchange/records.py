"""Exchange the records of all members: sent before the gradients are summed, read when all have arrived.

A member that has read them knows that every member has reached this step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.header import Header, Report, Summary, summarize


class Told:
    """Exchanges the records of a step.

    Args:
        group: the members.
        header: encodes the records.
        report: this member's.
        counts: samples of all V shards.
    """

    def __init__(self, group: Group, header: Header, report: Report, counts: Sequence[int]) -> None:
        self._header = header
        self._counts = counts
        self._alone = report if group.world == 1 else None
        if self._alone is not None:
            return
        self._blocks = blocks(len(counts), group.world)
        length = max(header.length([counts[shard] for shard in block]) for block in self._blocks)
        # Padded to the longest record: an all-gather needs equal lengths, and a second one for the lengths would cost a
        # round trip.
        record = header.encode(report)
        self._mine = torch.frombuffer(bytearray(record.ljust(length, b"\0")), dtype=torch.uint8)
        self._all = torch.empty(group.world * length, dtype=torch.uint8)
        self._handle = group.all_gather(self._all, self._mine)

    def summary(self) -> Summary:
        """Wait for the records and combine them."""
        if self._alone is not None:
            own = self._alone
            return Summary(own.pending, own.shards, own.present, own.changed_floats, own.changed_others, own.small)
        self._handle.wait()
        records = self._all.view(len(self._blocks), -1).numpy()
        return summarize(
            [
                self._header.decode(record.tobytes(), block, self._counts)
                for record, block in zip(records, self._blocks, strict=True)
            ]
        )
