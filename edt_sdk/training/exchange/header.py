"""Exchange the records that members send in every step, in addition to the summed vectors.

Each rank sends one record: the newest generation its link has delivered, its worker and process number, and for each
shard the loss, the correct samples, the metrics and the samples used. Then follow flags for the parameters with a
gradient and the changed buffers, and from rank 0 the small buffers that are not averaged. The order of the samples
determines the length of every record, so all ranks know it in advance and one all-gather of equal pieces is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.sampling.permutation import Indices

_HEAD = 3  # pending, worker, pid
Bits = npt.NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class ShardStats:
    """Describes one shard of a committed step.

    Attributes:
        loss: mean over its samples.
        correct: number of correct samples, None where labels are no classes.
        metrics: name → value.
        indices: samples in the order in which `__getitem__` was called.
        worker, pid: the worker that computed it.
    """

    shard: int
    samples: int
    loss: float
    correct: float | None
    metrics: dict[str, float]
    indices: Indices
    worker: int
    pid: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Holds the records of all ranks, combined. `small` are the bytes of rank 0's small buffers."""

    pending: int
    shards: tuple[ShardStats, ...]
    present: Bits
    changed_floats: Bits
    changed_others: Bits
    small: bytes


@dataclass(frozen=True, slots=True)
class Report(Summary):
    """Holds the record of a rank: the summary of its own shards, and its worker."""

    worker: int
    pid: int


class Header:
    """Defines the shape of the records for a kind of step: the names of the metrics, and sizes of the layout.

    A validation has none of these sizes. `small` are the bytes of small buffers.
    """

    def __init__(
        self, metrics: tuple[str, ...], *, parameters: int = 0, floats: int = 0, others: int = 0, small: int = 0
    ) -> None:
        self._metrics = metrics
        self._bits = (parameters, floats, others)
        self._small = small

    def length(self, counts: Sequence[int]) -> int:
        """Return the record size in bytes for a rank with these numbers of samples in its shards."""
        # Empty shards have no entry: their number follows from the order of the samples, which every rank computes.
        filled = [count for count in counts if count]
        words = _HEAD + sum(2 + len(self._metrics) + count for count in filled)
        return 8 * words + sum(self._bits) + self._small

    def encode(self, report: Report) -> bytes:
        """Encode the record of this rank."""
        parts = [np.array([report.pending, report.worker, report.pid], dtype=np.int64).tobytes()]
        for shard in report.shards:
            # NaN encodes None, so that every record has a fixed length.
            correct = np.nan if shard.correct is None else shard.correct
            values = [shard.loss, correct, *(shard.metrics[name] for name in self._metrics)]
            parts += [np.array(values, dtype=np.float64).tobytes(), shard.indices.astype(np.int64).tobytes()]
        parts += [bits.tobytes() for bits in (report.present, report.changed_floats, report.changed_others)]
        return b"".join([*parts, report.small])

    def decode(self, record: bytes, block: range, counts: Sequence[int]) -> Report:
        """Decode a record. `counts` are the samples of all V shards."""
        reader = _Reader(record)
        pending, worker, pid = (int(number) for number in reader.take(np.int64, _HEAD))
        shards = []
        for shard in block:
            if not counts[shard]:
                continue
            loss, correct, *values = (float(number) for number in reader.take(np.float64, 2 + len(self._metrics)))
            shards.append(
                ShardStats(
                    shard=shard,
                    samples=counts[shard],
                    loss=loss,
                    correct=None if np.isnan(correct) else correct,
                    metrics=dict(zip(self._metrics, values, strict=True)),
                    indices=reader.take(np.int64, counts[shard]),
                    worker=worker,
                    pid=pid,
                )
            )
        present, floats, others = (reader.take(np.bool_, count) for count in self._bits)
        small = reader.take(np.uint8, self._small).tobytes()
        return Report(pending, tuple(shards), present, floats, others, small, worker, pid)


def exchange(group: Group, header: Header, report: Report, counts: Sequence[int]) -> Summary:
    """Send this member's record to all members and combine theirs. `counts` are the samples of all V shards.

    A member that has read the records knows that every member has reached this step.
    """
    if group.world == 1:
        return report
    of_ranks = blocks(len(counts), group.world)
    length = max(header.length([counts[shard] for shard in block]) for block in of_ranks)
    # Padded to the longest record: an all-gather needs equal lengths, and a second one for the lengths would cost a
    # round trip.
    own = bytearray(header.encode(report).ljust(length, b"\0"))
    records = torch.empty(group.world * length, dtype=torch.uint8)
    group.all_gather(records, torch.frombuffer(own, dtype=torch.uint8)).wait()
    return summarize(
        [
            header.decode(record.tobytes(), block, counts)
            for record, block in zip(records.view(group.world, length).numpy(), of_ranks, strict=True)
        ]
    )


def summarize(reports: Sequence[Report]) -> Summary:
    """Combine the reports of all ranks, in rank order. Non-averaged buffers come from rank 0, which holds shard 0."""
    return Summary(
        # The minimum: a member switches to a generation only when every member has heard of that generation (decision
        # 002).
        pending=min(report.pending for report in reports),
        shards=tuple(shard for report in reports for shard in report.shards),
        present=np.logical_or.reduce([report.present for report in reports]),
        changed_floats=np.logical_or.reduce([report.changed_floats for report in reports]),
        changed_others=reports[0].changed_others,
        small=reports[0].small,
    )


class _Reader:
    def __init__(self, record: bytes) -> None:
        self._record = record
        self._at = 0

    def take(self, dtype: type[Number], count: int) -> npt.NDArray[Number]:
        # frombuffer makes read-only views without a copy. The record stays alive as their base.
        values = np.frombuffer(self._record, dtype=dtype, count=count, offset=self._at)
        self._at += values.nbytes
        return values
