"""Load micro-batches by key, in this process or in loader processes, with the same bits.

The random states for a micro-batch and its samples depend on (seed, epoch, step, shard) alone, so neither the process
nor its history matters. Every fetch runs under one intra-op thread, as in loader processes, and every tensor of a batch
starts on a 64-byte boundary. A validation leaves the epoch out, so that every validation measures the same samples.

The loader is built on torch's DataLoader: one iterator lives through the whole training, and its processes are forked
once. `plan` announces the next keys. On a change of membership, requested batches that are still wanted are kept, and
nothing is restarted. This module knows neither groups nor models.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from edt_sdk.schemas.errors import Unprocessable
from edt_sdk.training.exchange.layout import ALIGNMENT
from edt_sdk.training.sampling.order import TEST, TRAIN, BatchKey
from edt_sdk.training.sampling.permutation import Indices
from edt_sdk.training.sampling.seeds import derive, set_states
from edt_sdk.training.state import nested

_PR_SET_PDEATHSIG = 1

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Holds the result of the collate function, and its samples in the order of their `__getitem__` calls."""

    data: Any
    indices: Indices


class LoaderTraceback(Exception):
    """Carries the traceback of an error in a loader process as text. It is the cause of the error raised here."""

    def __str__(self) -> str:
        return f"in a loader process\n{self.args[0]}"


@dataclass(frozen=True, slots=True)
class _Failure:
    """Carries an error of the user's code out of a loader process."""

    what: str
    sample: int
    text: str


class ShardLoader:
    """Loads micro-batches of a training data set, and of a test data set if there is one.

    Args:
        dataset: map-style (`__getitem__`, `__len__`), with items of any structure.
        collate: list of items → batch. None for torch's default.
        test_collate: the same for keys of kind TEST. None for `collate`.
        seed: the job's.
        loader_workers: processes that prefetch. 0 loads in this process on demand.
        test_dataset: for keys of kind TEST.
        prefetch: batches that each loader process prefetches.

    Attributes:
        dataset: as given.

    The loader processes are forked here, so create the loader before sockets that other processes wait on. The forked
    processes close inherited sockets anyway: a data set must reopen its connections in `__getitem__`.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Collate | None = None,
        seed: int = 0,
        loader_workers: int = 0,
        *,
        test_dataset: Any = None,
        test_collate: Collate | None = None,
        prefetch: int = 2,
    ) -> None:
        collates = {TRAIN: collate or default_collate, TEST: test_collate or collate or default_collate}
        self.dataset = dataset
        self._fetcher = _Fetcher({TRAIN: dataset, TEST: test_dataset}, collates, seed)
        self._plan: Iterator[BatchKey] = iter(())
        self._urgent: deque[BatchKey] = deque()
        self._skip: set[BatchKey] = set()  # keys of the plan that need not be issued again
        self._wanted: set[BatchKey] = set()  # keys that `take` will request
        self._under_way: deque[BatchKey | None] = deque()
        self._arrived: dict[BatchKey, Batch | _Failure] = {}
        self._iterator: Iterator[Batch | _Failure | None] | None = None
        if loader_workers:
            self._iterator = self._start(loader_workers, prefetch)

    def plan(self, keys: Iterable[BatchKey]) -> None:
        """Announce the keys that will be taken from now on, in this order. The iterable is read as needed."""
        rest = iter(keys)
        if self._iterator is None:
            return
        # Keep every requested batch that is wanted soon. A block may grow by a factor of the number of workers, so the
        # next keys may stand a few blocks further in the new plan. Reading keys costs next to nothing.
        soon = list(islice(rest, 64 + 16 * len(self._under_way)))
        # Batches depend on their key alone, so a batch loaded for the old plan is right for the new one.
        known = self._arrived.keys() | {key for key in self._under_way if key is not None}
        self._skip = known.intersection(soon)
        self._wanted = set(self._skip)
        self._arrived = {key: batch for key, batch in self._arrived.items() if key in self._skip}
        self._urgent.clear()
        self._plan = chain(soon, rest)
        # Every received batch frees a slot. Replace the idle requests by real ones now, not at the next `take`.
        for _ in range(len(self._under_way)):
            if self._under_way[0] is not None:
                break
            self._receive()

    def take(self, key: BatchKey) -> Batch:
        """Return the batch of a key. An unplanned key is loaded too, only without prefetching.

        A batch loaded in this process leaves its random states behind. A caller that needs the previous states uses
        `seeds.preserved`.

        Raises:
            Unprocessable: the data set or the collate function raised. The message names the sample, and the cause has
                the traceback.
        """
        if self._iterator is None:
            return self._fetcher.fetch(key)
        if key not in self._arrived and key not in self._under_way:
            self._urgent.append(key)
            self._skip.add(key)
        # Batches arrive in the order of their requests, so others may arrive before this one.
        while key not in self._arrived:
            self._wanted.add(key)
            self._receive()
        self._wanted.discard(key)
        batch = self._arrived.pop(key)
        if isinstance(batch, _Failure):
            raise _error(batch) from LoaderTraceback(batch.text)
        return batch

    def close(self) -> None:
        """End the loader processes. May be called twice."""
        self._iterator = None  # the finalizer of the iterator ends and joins the processes
        self._under_way.clear()
        self._arrived.clear()

    def __enter__(self) -> ShardLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, loader_workers: int, prefetch: int) -> Iterator[Batch | _Failure | None]:
        loader: DataLoader[Any] = DataLoader(
            self._fetcher,
            batch_size=None,
            sampler=self._issue(),  # read by one iterator, for the whole training
            num_workers=loader_workers,
            collate_fn=_unchanged,
            worker_init_fn=partial(_begin, os.getpid(), threading.current_thread() is threading.main_thread()),
            prefetch_factor=prefetch,
            multiprocessing_context="fork",  # a data set defined in a notebook cannot be pickled for a spawned process
            generator=torch.Generator(),  # else the loader would draw its base seed from the global generator
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork next to a thread. Our threads run no Python code that could hold a lock of
            # the data set.
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            return iter(loader)

    def _issue(self) -> Iterator[BatchKey | None]:
        """Yield the keys for the loader processes forever. None keeps a process idle."""
        while True:
            key = self._next_key()
            if key is not None:
                self._wanted.add(key)
            self._under_way.append(key)
            yield key

    def _next_key(self) -> BatchKey | None:
        if self._urgent:
            return self._urgent.popleft()
        for key in self._plan:
            if key not in self._skip:
                return key
            self._skip.discard(key)
        return None

    def _receive(self) -> None:
        if self._iterator is None:
            raise RuntimeError("The loader is closed.")
        batch = next(self._iterator)  # issues further keys, at the other end of `_under_way`
        key = self._under_way.popleft()
        if key is not None and batch is not None and key in self._wanted:
            self._arrived[key] = batch


class _Fetcher(Dataset[Any]):
    """Loads the batch of a key, in this process and, after a fork, in every loader process."""

    def __init__(self, datasets: Mapping[str, Any], collates: Mapping[str, Collate], seed: int) -> None:
        self._datasets = datasets
        self._collates = collates
        self._seed = seed

    def __getitem__(self, key: BatchKey | None) -> Batch | _Failure | None:
        """Load a batch in a loader process. An error is a result, because the batch may be unwanted by then."""
        if key is None:
            return None
        try:
            return self.fetch(key)
        except Unprocessable as error:
            # Text, because an exception of the user's may not be picklable.
            cause = error.__cause__ or error
            return _Failure(error.message, error.ids["sample"], "".join(traceback.format_exception(cause)).rstrip())

    def fetch(self, key: BatchKey) -> Batch:
        with _one_thread():
            called: list[int] = []
            # Seed once per batch: seeding per sample would cost as much as a simple data set. Both are exact (decision
            # 012).
            epoch = (key.epoch,) if key.kind == TRAIN else ()
            set_states(derive(self._seed, f"{key.kind}-batch", *epoch, key.step, key.shard))
            items = [self._item(key, index, called) for index in key.indices]
            try:
                data = self._collates[key.kind](items)
            except Exception as error:
                first = key.indices[0]
                what = f"The collate function raised {_name(error)} for the {key.kind} samples from {first} on"
                raise _error(_Failure(what, first, "")) from error
            return Batch(nested.convert(data, _aligned), np.array(called, dtype=np.int64))

    def _item(self, key: BatchKey, index: int, called: list[int]) -> Any:
        called.append(index)
        try:
            return self._datasets[key.kind][index]
        except Exception as error:
            what = f"The {key.kind} data set raised {_name(error)} for sample {index}"
            raise _error(_Failure(what, index, "")) from error


def _error(failure: _Failure) -> Unprocessable:
    return Unprocessable(
        failure.what if failure.what.endswith(".") else f"{failure.what}.",
        hint="The log has its own traceback. Try the same sample in a notebook.",
        sample=failure.sample,
        field="datasets_function",
    )


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    # Numpy memory may start at any 16 bytes, which changes the result of some matrix kernels. Torch memory, shared or
    # not, starts at 64.
    return tensor.clone() if tensor.layout is torch.strided and tensor.data_ptr() % ALIGNMENT else tensor


def _unchanged(batch: Any) -> Any:
    return batch


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    if threads == 1:  # setting the number discards the convolutions that oneDNN has prepared (decision 012)
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _begin(parent: int, in_main_thread: bool, _worker: int) -> None:
    """Initialize a loader process, which ends with its parent. Torch's own watchdog takes up to 5 s."""
    _forget_sockets()
    # Linux sends the signal when the *thread* that forked ends.
    if not in_main_thread or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the prctl call
        os._exit(1)


def _forget_sockets() -> None:
    """Replace the inherited sockets of a loader process by /dev/null.

    The peers of a killed worker notice its death when its sockets close. A child that still holds them would prevent
    that.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.dup2(nothing, int(name), inheritable=False)
        except OSError:  # the descriptor of the listing itself
            continue
    os.close(nothing)
