"""Cut data sets into updates and parts, in the order that all workers agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler, WeightedRandomSampler, default_collate

from edt_sdk.elastic.stream import FileByFile, Stream
from edt_sdk.schemas.errors import InvalidRequest, Unprocessable
from edt_sdk.schemas.job import DEFAULT_SHARDS
from edt_sdk.training.sampling.order import BatchKey, Order, TestOrder, TestStep, TrainStep
from edt_sdk.training.sampling.permutation import Indices
from edt_sdk.training.sampling.seeds import derive, preserved, set_states
from edt_sdk.training.update.loader import ShardLoader

Collate = Callable[[list[Any]], Any]
_FOREVER = 1 << 40  # passes
DEFAULT_BATCH = 64  # of an evaluation


@dataclass(frozen=True, slots=True)
class Section:
    """Holds the updates of one `run.updates()`: its order, what loads it, its updates, and its first pass."""

    order: Order
    loader: ShardLoader
    steps: int
    first_pass: int

    @property
    def shards(self) -> int:
        """Return how many parts a full batch has."""
        return self.order.number_of_shards

    def pass_of(self, index: int) -> int:
        """Return the pass over the data set that an update belongs to."""
        return self.first_pass + index // self.order.updates_per_epoch

    def keys(self, index: int, block: range, updates: int) -> Iterator[BatchKey]:
        """Yield what a worker with these parts loads from update `index` on. `updates` are done before that."""
        for number in range(index, self.steps):
            step = TrainStep(self.pass_of(number), self.index_in_pass(number), updates + number - index)
            yield from self.order.keys(step, block)

    def index_in_pass(self, index: int) -> int:
        """Return the number of an update in its pass."""
        return index % self.order.updates_per_epoch


@dataclass(frozen=True, slots=True)
class TestSection:
    """Holds an evaluation: its order, and what loads it."""

    __test__ = False  # pytest must not collect this class

    order: TestOrder
    shards: int
    loader: ShardLoader

    def keys(self, block: range) -> Iterator[BatchKey]:
        """Yield what a worker with these parts loads."""
        for index in range(self.order.steps):
            yield from self.order.keys(TestStep(0, index), block)


class SampledOrder(Order):
    """Orders the samples of each pass as a sampler draws them."""

    def __init__(self, sampler: Sampler[int], length: int, sizes: tuple[int, ...], micro_batch: int, seed: int) -> None:
        super().__init__(length, sizes, micro_batch, seed, _FOREVER)
        self._sampler = sampler
        self._drawn: dict[int, Indices] = {}

    def _part(self, epoch: int, start: int, stop: int) -> Indices:
        if epoch not in self._drawn:
            for old in sorted(self._drawn)[:-1]:
                del self._drawn[old]
            # The same numbers in every worker, whenever it asks.
            with preserved():
                set_states(derive(self.seed, "sampler", epoch))
                if hasattr(self._sampler, "set_epoch"):
                    self._sampler.set_epoch(epoch)
                if isinstance(self._sampler, FileByFile):
                    drawn = self._sampler.drawn()
                else:
                    drawn = np.fromiter((int(index) for index in self._sampler), dtype=np.int64)
            if len(drawn) != self.samples:
                raise Unprocessable(
                    f"The sampler gave {len(drawn)} samples, and its length is {self.samples}.",
                    hint="len(sampler) must be the number of samples that it yields, in each pass.",
                    field="sampler",
                )
            self._drawn[epoch] = drawn
        return self._drawn[epoch][start:stop]


class Sections:
    """Opens the sections of a run. Data sets keep their loaders from one epoch to the next."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def open(
        self,
        dataset: Any,
        *,
        batch: int | None,
        shards: int | None,
        sampler: Any,
        collate: Collate | None,
        loader_workers: int,
        steps: int | None,
        first_pass: int,
    ) -> Section:
        """Return the updates of a pass over a data set, or `steps` of them. Arguments as for `ElasticRun.updates`."""
        if isinstance(dataset, DataLoader):
            batch, collate, loader_workers = _taken_from(dataset, batch, collate, loader_workers)
            sampler = order_of(dataset) if sampler is None else sampler
            steps = len(dataset) if steps is None and dataset.drop_last else steps
            dataset = dataset.dataset
        _check_dataset(dataset)
        batch = _at_least_one("batch", batch)
        if sampler is None and isinstance(dataset, Stream):
            sampler = dataset.sampler
        sizes = _sizes(batch, shards)
        key = id(dataset), id(sampler), sizes, id(collate), loader_workers
        if key not in self._known:
            order = self._order(dataset, sampler, sizes)
            loader = ShardLoader(dataset, collate, self._seed, loader_workers)
            # The objects too, so that their ids stay theirs.
            self._known[key] = (order, loader), (dataset, sampler, collate)
        order, loader = self._known[key][0]
        if order.samples != len(sampler if isinstance(sampler, Sampler) else dataset):  # type: ignore[arg-type]
            if loader_workers:
                raise Unprocessable(
                    "The length of a data set has changed, which processes that load samples do not see.",
                    hint="Give loader_workers=0.",
                    field="loader_workers",
                )
            order = self._order(dataset, sampler, sizes)
            self._known[key] = (order, loader), self._known[key][1]
        if steps is not None:
            _at_least_one("steps", steps)
        return Section(order, loader, order.updates_per_epoch if steps is None else steps, first_pass)

    def test(
        self, dataset: Any, *, batch: int | None, shards: int, collate: Collate | None, loader_workers: int
    ) -> TestSection:
        """Return an evaluation of a data set. Arguments as for `ElasticRun.evaluate`."""
        if isinstance(dataset, DataLoader):
            batch, collate, loader_workers = _taken_from(dataset, batch, collate, loader_workers)
            dataset = dataset.dataset
        _check_dataset(dataset)
        batch = _at_least_one("batch", DEFAULT_BATCH if batch is None else batch)
        key = "test", id(dataset), len(dataset), batch, shards, id(collate), loader_workers
        if key not in self._known:
            loader = ShardLoader(None, None, self._seed, loader_workers, test_dataset=dataset, test_collate=collate)
            self._known[key] = TestSection(TestOrder(len(dataset), (batch,) * shards, batch), shards, loader), dataset
        found: TestSection = self._known[key][0]
        return found

    def _order(self, dataset: Any, sampler: Any, sizes: tuple[int, ...]) -> Order:
        if sampler is None:
            return Order(len(dataset), sizes, sizes[0], self._seed, _FOREVER)
        if not isinstance(sampler, Sampler):
            if not isinstance(sampler, torch.Tensor | np.ndarray | list | tuple) or len(sampler) != len(dataset):
                raise InvalidRequest(
                    f"sampler must be a torch.utils.data.Sampler, or {len(dataset)} weights, one for each sample.",
                    field="sampler",
                )
            sampler = WeightedRandomSampler([float(weight) for weight in sampler], len(dataset))
        return SampledOrder(sampler, len(sampler), sizes, sizes[0], self._seed)


def _taken_from(
    loader: DataLoader[Any], batch: int | None, collate: Collate | None, loader_workers: int
) -> tuple[int | None, Collate | None, int]:
    """Return what a DataLoader has where it was not given."""
    if batch is None and loader.batch_size is None:
        raise InvalidRequest(
            "A DataLoader with a batch_sampler, or without batches, cannot be divided among workers.",
            hint="Give batch=, and sampler= for the order of samples.",
            field="dataset",
        )
    # Its own default is left out: torch's, as the engine's.
    own = None if loader.collate_fn is default_collate else loader.collate_fn
    return loader.batch_size if batch is None else batch, collate or own, loader_workers or loader.num_workers


def order_of(loader: DataLoader[Any]) -> Sampler[Any] | None:
    """Return the sampler of a DataLoader, None for that of `shuffle=True`: the engine's own order does the same."""
    own = loader.sampler
    if not isinstance(own, Sampler):
        raise InvalidRequest(
            f"The sampler of the DataLoader is a {type(own).__name__}, and no torch.utils.data.Sampler.",
            hint="A class of your own: torch.utils.data.Sampler as its base, with __iter__ and __len__.",
            field="sampler",
        )
    shuffles = type(own) is RandomSampler and not own.replacement and own.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    return None if shuffles else own


def updates_in(samples: int, *, batch: int, shards: int | None) -> int:
    """Return the number of updates of a pass over so many samples. Other arguments as for `ElasticRun.updates`."""
    sizes = _sizes(batch, shards)
    return Order(samples, sizes, sizes[0], 0, 1).updates_per_epoch


def _sizes(batch: int, shards: int | None) -> tuple[int, ...]:
    """Return the samples of each part of an update."""
    count = _at_least_one("shards", shards if shards is not None else min(DEFAULT_SHARDS, batch))
    if batch < count:
        raise InvalidRequest(
            f"A batch of {batch} samples cannot have {count} shards.",
            hint="batch= is the number of samples of an update, shards= the parts that it is cut into.",
            field="shards",
        )
    size, larger = divmod(batch, count)
    return tuple(size + (number < larger) for number in range(count))


def _check_dataset(dataset: Any) -> None:
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return
    what = type(dataset).__name__
    hint = "Give a map-style data set, with __getitem__ and __len__."
    if isinstance(dataset, Iterable):
        hint = "Samples of files are divided by edt.stream(files, decode). Others can be read into a list."
    raise InvalidRequest(f"A {what} cannot be divided among workers.", hint=hint, field="dataset")


def _at_least_one(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be a whole number, not {value!r}.", field=name)
    if value < 1:
        raise Unprocessable(f"{name} must be at least 1, not {value}.", field=name)
    return value
