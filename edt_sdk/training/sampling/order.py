"""Assign samples to updates and shards. Pure: the result depends on the arguments alone.

An epoch is one seeded permutation. Update k takes the next `sum(sizes)` samples, and shard v takes the v-th part.
The remainder of an epoch fills micro-batches in shard order. Only the last micro-batch may be short, and the shards
after it are empty. A single left-over sample joins the shard before it, if need be the last shard of the previous
update, because BatchNorm cannot train on one sample and a matrix product with a single row takes another kernel.

The number of workers appears nowhere in this file, so the bits of a training do not depend on that number. This module
never imports torch and never looks at the data.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.job import DEFAULT_SHARDS
from edt_sdk.training.sampling.permutation import Indices, Permutation

TRAIN = "train"
TEST = "test"


@dataclass(frozen=True, slots=True)
class TrainStep:
    """Identify an optimizer step. `update_in_epoch` restarts in each epoch, `update` does not. All count from 0."""

    epoch: int
    update_in_epoch: int
    update: int


@dataclass(frozen=True, slots=True)
class TestStep:
    """Identify one step of the validation after `epoch`. `index` counts from 0 within that validation."""

    __test__: ClassVar[bool] = False  # pytest must not collect this class

    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class BatchKey:
    """Identify a micro-batch. The other fields determine `indices`, so comparisons leave them out.

    Attributes:
        kind: the data set, TRAIN or TEST.
        epoch: from 0.
        step: `update_in_epoch` of a train step, `index` of a test step.
        shard: 0 ≤ shard < V.
        indices: samples of the data set, in order. Never empty.
    """

    kind: str
    epoch: int
    step: int
    shard: int
    indices: tuple[int, ...] = field(compare=False, repr=False)


def shard_sizes(
    batch_size: int, *, engines_number: int | None = None, effective_batch_size: int | None = None
) -> tuple[int, ...]:
    """Return how many samples each of the V shards of a full update takes.

    V is `engines_number`, else ceil(effective_batch_size / batch_size), else 8. With an effective batch size the last
    shard is smaller so that the sum is exact, and a last shard with a single sample joins the shard before it.

    Raises:
        InvalidRequest: both are given, or a value is not a whole number.
        Unprocessable: a value is below 1.
    """
    if engines_number is not None and effective_batch_size is not None:
        raise InvalidRequest(
            "engines_number and effective_batch_size exclude each other.",
            hint="With engines_number an update takes engines_number × batch_size samples, "
            "with effective_batch_size exactly that number.",
            field="effective_batch_size",
        )
    batch = _at_least_one(batch_size, "batch_size", "It is the number of samples a worker computes at once.")
    if effective_batch_size is not None:
        effective = _at_least_one(
            effective_batch_size, "effective_batch_size", "It is the number of samples in one update."
        )
        return _cut(effective, batch)
    if engines_number is None:
        return (batch,) * DEFAULT_SHARDS
    return (batch,) * _at_least_one(engines_number, "engines_number", "It is the most workers the training can use.")


class Order:
    """Knows the samples of every update of a training.

    Args:
        samples: length of the data set.
        sizes: capacities of the V shards, from `shard_sizes`.
        micro_batch: `batch_size`. Shards of the remainder are filled up to it.
        seed: 0 ≤ seed < 2**63.
        epochs: passes over the data.

    Raises:
        Unprocessable: the data set is empty, or a number is below 1.
    """

    def __init__(self, samples: int, sizes: tuple[int, ...], micro_batch: int, seed: int, epochs: int) -> None:
        if samples < 1:
            raise Unprocessable(
                "The training data set is empty.",
                hint="Check that datasets_function returns (train, test) and that len(train) is what you expect.",
                field="datasets_function",
            )
        self.samples = samples
        self.sizes = sizes
        self.number_of_shards = len(sizes)
        self.seed = seed
        self.epochs = _at_least_one(epochs, "epoch_number", "It is the number of passes over the data.")
        self._steps = _Steps(samples, sizes, micro_batch)
        self.updates_per_epoch = self._steps.count
        self._permutations: dict[int, Permutation] = {}

    def samples_of(self, epoch: int, update_in_epoch: int) -> tuple[int, ...]:
        """Return how many samples each of the V shards holds, 0 for an empty shard. All epochs agree."""
        self._check_epoch(epoch)
        return self._steps.counts(update_in_epoch)

    def shards(self, epoch: int, update_in_epoch: int) -> tuple[Indices, ...]:
        """Return V arrays of sample indices (int64). An array may be empty."""
        self._check_epoch(epoch)
        start, stop = self._steps.span(update_in_epoch)
        return _split(self._part(epoch, start, stop), self._steps.counts(update_in_epoch))

    def keys(self, step: TrainStep, block: range) -> Iterator[BatchKey]:
        """Yield the micro-batches of a step for the shards in `block`, in shard order, without empty shards."""
        shards = self.shards(step.epoch, step.update_in_epoch)
        return _keys(TRAIN, step.epoch, step.update_in_epoch, shards, block)

    def _check_epoch(self, epoch: int) -> None:
        if not 0 <= epoch < self.epochs:
            raise IndexError(f"epoch {epoch} of {self.epochs}")

    def _part(self, epoch: int, start: int, stop: int) -> Indices:
        return self._permutation(epoch).part(start, stop)

    def _permutation(self, epoch: int) -> Permutation:
        if epoch not in self._permutations:
            # Prefetching reads the next epoch while the last updates of this epoch are computed. Two cached epochs are
            # enough.
            # Keep the newest of them, which the updates in progress still use.
            for old in sorted(self._permutations)[:-1]:
                del self._permutations[old]
            self._permutations[epoch] = Permutation(self.samples, self.seed, epoch)
        return self._permutations[epoch]


class TestOrder:
    """Knows the samples of a validation: fixed steps of at most V micro-batches, unpermuted, the same for every N.

    The steps are cut exactly like an epoch of training. A single sample also joins the micro-batch before it. Otherwise
    a model that squeezes away a batch dimension of size 1 would fail in validation alone.

    Arguments as for `Order`. The test data set may be empty, which means no steps.
    """

    __test__: ClassVar[bool] = False  # pytest must not collect this class

    def __init__(self, samples: int, sizes: tuple[int, ...], micro_batch: int) -> None:
        self.samples = samples
        self._steps = _Steps(samples, sizes, micro_batch)
        self.steps = self._steps.count

    def samples_of(self, index: int) -> tuple[int, ...]:
        """Return how many samples each of the V shards holds."""
        return self._steps.counts(index)

    def shards(self, index: int) -> tuple[Indices, ...]:
        """Return V arrays of sample indices (int64). An array may be empty."""
        start, stop = self._steps.span(index)
        return _split(np.arange(start, stop, dtype=np.int64), self._steps.counts(index))

    def keys(self, step: TestStep, block: range) -> Iterator[BatchKey]:
        """Yield the micro-batches of a step for the shards in `block`, in shard order, without empty shards."""
        return _keys(TEST, step.epoch, step.index, self.shards(step.index), block)


class _Steps:
    """Cuts the positions 0 … samples into steps of sum(sizes) and a remainder."""

    def __init__(self, samples: int, sizes: tuple[int, ...], micro_batch: int) -> None:
        if not sizes or min(sizes) < 1 or micro_batch < 1:
            raise Unprocessable(f"Shards of {sizes} samples and micro-batches of {micro_batch} are not possible.")
        self._samples = samples
        self._sizes = sizes
        self._micro_batch = micro_batch
        self._full = sum(sizes)
        self._full_steps, self._remainder = divmod(samples, self._full)
        # A single left-over sample joins the last update. It stays alone where the user asked for updates with one
        # sample.
        self._joins = self._remainder == 1 and micro_batch > 1 and self._full_steps > 0
        self.count = self._full_steps + (self._remainder > 0 and not self._joins)

    def counts(self, step: int) -> tuple[int, ...]:
        self._check(step)
        if step < self._full_steps:
            joined = int(self._joins and step == self._full_steps - 1)
            # Only the last full update can take the left-over sample, and only in its last shard.
            return (*self._sizes[:-1], self._sizes[-1] + joined)
        filled = _cut(self._remainder, self._micro_batch)
        return filled + (0,) * (len(self._sizes) - len(filled))

    def span(self, step: int) -> tuple[int, int]:
        self._check(step)
        start = step * self._full
        return start, start + sum(self.counts(step))

    def _check(self, step: int) -> None:
        if not 0 <= step < self.count:
            raise IndexError(f"step {step} of {self.count}")


def _cut(samples: int, micro_batch: int) -> tuple[int, ...]:
    """Return the sizes of micro-batches that hold `samples` exactly. A last single sample joins the batch before it."""
    whole, rest = divmod(samples, micro_batch)
    counts = [micro_batch] * whole + [rest] * (rest > 0)
    if micro_batch > 1 and len(counts) > 1 and counts[-1] == 1:
        counts[-2:] = [counts[-2] + 1]
    return tuple(counts)


def _split(indices: Indices, counts: tuple[int, ...]) -> tuple[Indices, ...]:
    return tuple(np.split(indices, np.cumsum(counts)[:-1]))


def _keys(kind: str, epoch: int, step: int, shards: tuple[Indices, ...], block: range) -> Iterator[BatchKey]:
    for shard in block:
        if len(shards[shard]):
            yield BatchKey(kind, epoch, step, shard, tuple(shards[shard].tolist()))


def _at_least_one(value: int, name: str, meaning: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidRequest(f"{name} must be a whole number, not {value!r}.", hint=meaning, field=name) from None
    if number < 1:
        raise Unprocessable(f"{name} must be at least 1, not {number}.", hint=meaning, field=name)
    return number
