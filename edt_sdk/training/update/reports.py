"""Build the records of a member about its shards of a step. Never communicates."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from edt_sdk.training.exchange.buffer_sync import Others
from edt_sdk.training.exchange.header import Bits, Report, ShardStats
from edt_sdk.training.exchange.layout import Layout
from edt_sdk.training.update.shard import ShardOutcome
from edt_sdk.training.update.user_functions import number_or_none, plain


class Reports:
    """Builds the reports of a member.

    Args:
        layout: of the vectors.
        others: the buffers that cannot be averaged.
        worker: number of this worker.
        metrics: their names.
    """

    def __init__(self, layout: Layout, others: Others, worker: int, metrics: tuple[str, ...]) -> None:
        self._layout = layout
        self._others = others
        self._worker = worker
        self._metrics = metrics

    def of_update(self, outcomes: Sequence[ShardOutcome], pending: int, *, alone: bool = False) -> Report:
        """Report the shards of an update. `pending` as in `UpdateEngine.commit`. `alone`: no other member reads it."""
        floats, others = len(self._layout.floats), len(self._layout.others)
        present = np.zeros(len(self._layout.parameters), dtype=np.bool_)
        changed = np.zeros(floats + others, dtype=np.bool_)
        of_shard_0 = np.zeros(others, dtype=np.bool_)
        small = b""
        # Compare the shared tuples first: converting one per shard costs more than the comparison.
        for of_shards in {outcome.present for outcome in outcomes}:  # usually a single set
            present |= np.array(of_shards, dtype=np.bool_)
        for outcome in outcomes:
            bits = _bits_of(outcome)
            changed |= bits
            if outcome.shard == 0:
                of_shard_0 = bits[floats:]
                small = b"" if alone else self._others.pack(outcome.others)
        stats = self._stats(outcomes)
        return Report(pending, self._worker, os.getpid(), stats, present, changed[:floats], of_shard_0, small)

    def of_test(self, outcomes: Sequence[ShardOutcome], pending: int) -> Report:
        """Report the shards of a validation step."""
        none = np.zeros(0, dtype=np.bool_)
        return Report(pending, self._worker, os.getpid(), self._stats(outcomes), none, none, none, b"")

    def _stats(self, outcomes: Sequence[ShardOutcome]) -> tuple[ShardStats, ...]:
        return tuple(
            ShardStats(
                shard=outcome.shard,
                samples=outcome.samples,
                loss=plain(outcome.loss),
                correct=number_or_none(outcome.correct),
                metrics=dict(zip(self._metrics, outcome.metrics, strict=True)),
                indices=outcome.indices,
                worker=self._worker,
                pid=os.getpid(),
            )
            for outcome in outcomes
        )


def _bits_of(outcome: ShardOutcome) -> Bits:
    if outcome.changed is None:
        raise ValueError(f"shard {outcome.shard} was not trained")
    return outcome.changed
