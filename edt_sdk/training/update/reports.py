"""Build the records of a member about its shards of a step. Never communicates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edt_sdk.training.exchange.buffer_sync import Others
from edt_sdk.training.exchange.header import Report, ShardStats
from edt_sdk.training.exchange.layout import Layout
from edt_sdk.training.update.shard import ShardOutcome
from edt_sdk.training.update.user_functions import number_or_none, plain


@dataclass(frozen=True, slots=True)
class Reports:
    """Builds the reports of a member. `metrics` are the names of the user's metrics."""

    layout: Layout
    others: Others
    worker: int
    metrics: tuple[str, ...]

    def of_update(self, outcomes: Sequence[ShardOutcome], pending: int, *, alone: bool = False) -> Report:
        """Report the shards of an update. `pending` as in `UpdateEngine.commit`. `alone`: no other member reads it."""
        floats, others = len(self.layout.floats), len(self.layout.others)
        present = np.zeros(len(self.layout.parameters), dtype=np.bool_)
        changed = np.zeros(floats + others, dtype=np.bool_)
        of_shard_0 = np.zeros(others, dtype=np.bool_)
        small = b""
        # Compare the shared tuples first: converting one per shard costs more than the comparison.
        for of_shards in {outcome.present for outcome in outcomes}:  # usually a single set
            present |= np.array(of_shards, dtype=np.bool_)
        for outcome in outcomes:
            assert outcome.changed is not None, "a validation has no update"
            changed |= outcome.changed
            if outcome.shard == 0:
                of_shard_0 = outcome.changed[floats:]
                small = b"" if alone else self.others.pack(outcome.others)
        stats = self._stats(outcomes)
        return Report(pending, stats, present, changed[:floats], of_shard_0, small, self.worker, os.getpid())

    def of_test(self, outcomes: Sequence[ShardOutcome], pending: int) -> Report:
        """Report the shards of a validation step."""
        none = np.zeros(0, dtype=np.bool_)
        return Report(pending, self._stats(outcomes), none, none, none, b"", self.worker, os.getpid())

    def _stats(self, outcomes: Sequence[ShardOutcome]) -> tuple[ShardStats, ...]:
        return tuple(
            ShardStats(
                shard=outcome.shard,
                samples=outcome.samples,
                loss=plain(outcome.loss),
                correct=number_or_none(outcome.correct),
                metrics=dict(zip(self.metrics, outcome.metrics, strict=True)),
                indices=outcome.indices,
                worker=self.worker,
                pid=os.getpid(),
            )
            for outcome in outcomes
        )
