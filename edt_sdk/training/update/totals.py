"""Compute means over shards, of an update or of a validation in several steps. Pure. Sums in shard order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edt_sdk.training.exchange.header import ShardStats


@dataclass(frozen=True, slots=True)
class Totals:
    """Holds sums over the samples so far.

    Attributes:
        right: correct samples. None as soon as the labels of any shard are no classes.
        metrics_sums: sums of the user's metrics by name.
    """

    samples: int = 0
    loss_sum: float = 0.0
    right: float | None = 0.0
    metrics_sums: tuple[tuple[str, float], ...] = ()

    def add(self, stats: Sequence[ShardStats]) -> Totals:
        """Return these sums plus those of further shards."""
        samples, loss, right = self.samples, self.loss_sum, self.right
        metrics = dict(self.metrics_sums)
        for shard in stats:
            samples += shard.samples
            loss += shard.loss * shard.samples
            # One shard without classes makes the whole accuracy unknown. A partial one would look like a low one.
            right = None if right is None or shard.correct is None else right + shard.correct
            for name, value in shard.metrics.items():
                metrics[name] = metrics.get(name, 0.0) + value * shard.samples
        return Totals(samples, loss, right, tuple(metrics.items()))

    @property
    def loss(self) -> float:
        """Return the mean loss per sample."""
        return self.loss_sum / self.samples

    @property
    def accuracy(self) -> float | None:
        """Return the fraction of right answers, None where labels are no classes."""
        return None if self.right is None else self.right / self.samples

    @property
    def metrics(self) -> dict[str, float | None]:
        """Return the means of the user's metrics."""
        return {name: total / self.samples for name, total in self.metrics_sums}


def accuracy(shard: ShardStats) -> float | None:
    """Return the fraction of right answers in a shard."""
    return None if shard.correct is None else shard.correct / shard.samples
