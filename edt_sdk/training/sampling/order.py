"""Which samples belong to which update and which shard: pure, a function of its arguments and of nothing else.

An epoch is one seeded permutation. Update k takes the next `sum(sizes)` samples of it, shard v the v-th part. What is
left at the end of an epoch fills micro-batches in shard order; only the last may be short, further shards are empty. A
shard that would hold one single sample joins the shard before it (BatchNorm cannot train on one, and a matrix product
of one row takes another kernel), if need be the last shard of the update before. The number of workers appears nowhere
in this file: that is what keeps the bits of a training independent of it. Never imports torch, never looks at the data.
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
    """One optimizer step: `update_in_epoch` restarts each epoch, `update` does not; all count from 0."""

    epoch: int
    update_in_epoch: int
    update: int


@dataclass(frozen=True, slots=True)
class TestStep:
    """One step of the validation after `epoch`; `index` counts from 0 within it."""

    __test__: ClassVar[bool] = False  # not a test of pytest's

    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class BatchKey:
    """The name of one micro-batch; `indices` follow from the other fields and take no part in comparisons.

    Attributes:
        kind: TRAIN or TEST, which data set.
        epoch: from 0.
        step: `update_in_epoch` of a train step, `index` of a test step.
        shard: 0 ≤ shard < V.
        indices: samples of the data set, in order; never empty.
    """

    kind: str
    epoch: int
    step: int
    shard: int
    indices: tuple[int, ...] = field(compare=False, repr=False)


def shard_sizes(
    batch_size: int, *, engines_number: int | None = None, effective_batch_size: int | None = None
) -> tuple[int, ...]:
    """How many samples each of the V shards of a full update takes.

    V is `engines_number`; else ceil(effective_batch_size / batch_size), the last shard smaller so that the sum is exact
    (a last shard of one sample joins the one before it); else 8.

    Raises:
        InvalidRequest: both are given, or a value is not a whole number.
        Unprocessable: a value is below 1.
    """
    if engines_number is not None and effective_batch_size is not None:
        raise InvalidRequest(
            "engines_number and effective_batch_size exclude each other.",
            hint="Give engines_number, and an update takes engines_number × batch_size samples; "
            "or give effective_batch_size, and it takes exactly that many.",
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
    """The samples of a whole training.

    Args:
        samples: length of the data set.
        sizes: capacities of the V shards, from `shard_sizes`.
        micro_batch: `batch_size`, what a shard of the remainder is filled to.
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
        self.seed = seed
        self.epochs = _at_least_one(epochs, "epoch_number", "It is the number of passes over the data.")
        self._steps = _Steps(samples, sizes, micro_batch)
        self._permutations: dict[int, Permutation] = {}

    @property
    def number_of_shards(self) -> int:
        """V."""
        return len(self.sizes)

    @property
    def updates_per_epoch(self) -> int:
        """Optimizer steps of one epoch, ≥ 1."""
        return self._steps.count

    @property
    def total_updates(self) -> int:
        """Optimizer steps of the whole training."""
        return self.epochs * self._steps.count

    def step(self, update: int) -> TrainStep:
        """The `update`-th optimizer step of the training, from 0."""
        epoch, update_in_epoch = divmod(update, self._steps.count)
        return TrainStep(epoch, update_in_epoch, update)

    def samples_of(self, epoch: int, update_in_epoch: int) -> tuple[int, ...]:
        """How many samples each of the V shards holds; zeros for empty ones. The same in every epoch."""
        self._check_epoch(epoch)
        return self._steps.counts(update_in_epoch)

    def shards(self, epoch: int, update_in_epoch: int) -> tuple[Indices, ...]:
        """V arrays of sample indices (int64), possibly empty."""
        self._check_epoch(epoch)
        start, stop = self._steps.span(update_in_epoch)
        return _split(self._permutation(epoch).part(start, stop), self._steps.counts(update_in_epoch))

    def keys(self, step: TrainStep, block: range) -> Iterator[BatchKey]:
        """The micro-batches of one step that the shards in `block` compute, in shard order, empty shards left out."""
        shards = self.shards(step.epoch, step.update_in_epoch)
        return _keys(TRAIN, step.epoch, step.update_in_epoch, shards, block)

    def _check_epoch(self, epoch: int) -> None:
        if not 0 <= epoch < self.epochs:
            raise IndexError(f"epoch {epoch} of {self.epochs}")

    def _permutation(self, epoch: int) -> Permutation:
        if epoch not in self._permutations:
            # Two epochs are enough: prefetching looks at the next one while the last updates of this one are computed.
            for old in sorted(self._permutations)[:-1]:
                del self._permutations[old]
            self._permutations[epoch] = Permutation(self.samples, self.seed, epoch)
        return self._permutations[epoch]


class TestOrder:
    """The samples of one validation: no permutation, fixed steps of at most V micro-batches, the same for every N.

    Cut exactly like an epoch of training, also in that a single sample joins the micro-batch before it: models that
    squeeze away a batch dimension of one would otherwise fail in validation alone.

    Args:
        samples: length of the test data set; 0 is allowed and means no steps.
        sizes: as for `Order`.
        micro_batch: as for `Order`.
    """

    __test__: ClassVar[bool] = False  # not a test of pytest's

    def __init__(self, samples: int, sizes: tuple[int, ...], micro_batch: int) -> None:
        self.samples = samples
        self.sizes = sizes
        self._steps = _Steps(samples, sizes, micro_batch)

    @property
    def number_of_shards(self) -> int:
        """V."""
        return len(self.sizes)

    @property
    def steps(self) -> int:
        """Steps of one validation."""
        return self._steps.count

    def samples_of(self, index: int) -> tuple[int, ...]:
        """How many samples each of the V shards holds."""
        return self._steps.counts(index)

    def shards(self, index: int) -> tuple[Indices, ...]:
        """V arrays of sample indices (int64), possibly empty."""
        start, stop = self._steps.span(index)
        return _split(np.arange(start, stop, dtype=np.int64), self._steps.counts(index))

    def keys(self, step: TestStep, block: range) -> Iterator[BatchKey]:
        """The micro-batches of one step that the shards in `block` compute, in shard order, empty shards left out."""
        return _keys(TEST, step.epoch, step.index, self.shards(step.index), block)


class _Steps:
    """Positions 0 … samples cut into steps of sum(sizes) and a remainder."""

    def __init__(self, samples: int, sizes: tuple[int, ...], micro_batch: int) -> None:
        if not sizes or min(sizes) < 1 or micro_batch < 1:
            raise Unprocessable(f"Shards of {sizes} samples and micro-batches of {micro_batch} are not possible.")
        self._samples = samples
        self._sizes = sizes
        self._micro_batch = micro_batch
        self._full = sum(sizes)
        self._full_steps, self._remainder = divmod(samples, self._full)
        # The one sample left over joins the last update; where updates of one sample are what was asked for, it stays.
        self._joins = self._remainder == 1 and micro_batch > 1 and self._full_steps > 0
        self.count = self._full_steps + (self._remainder > 0 and not self._joins)

    def counts(self, step: int) -> tuple[int, ...]:
        self._check(step)
        if step < self._full_steps:
            joined = int(self._joins and step == self._full_steps - 1)
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
    """Micro-batches that hold `samples` exactly; a last one of a single sample joins the one before it."""
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
