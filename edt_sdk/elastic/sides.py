"""Tell apart where a script runs: alone, as the driver of a job, or as one of its workers.

`Side` is what a run asks: with which members to make its next call, and what to do with the result. `Alone` is a plain
process without a job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from edt_sdk.elastic.place import Place
from edt_sdk.elastic.run_state import RunState
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.sampling.order import BatchKey, Order, TrainStep
from edt_sdk.training.update.loader import Batch, ShardLoader
from edt_sdk.training.update.update import Committed, ShardPart


@dataclass(frozen=True, slots=True)
class Among:
    """Names the members that make a call."""

    group: Group
    rank: int
    world: int


class Moved(BaseException):
    """Ends what a loop of a framework's own does: this worker has missed its end, and has the state of the others."""


class Side(Protocol):
    """Declares what a run needs to know of the process that it is in."""

    current: RunState
    jumps: bool
    """Whether all calls are alike, so that a worker takes the state of the others wherever they are."""
    target: Place | None
    """The place of the others while this process is not there yet, and skips calls."""

    @property
    def first(self) -> bool:
        """Return whether this process writes files and prints for all."""

    @property
    def broke(self) -> bool:
        """Return whether the last attempt has failed because a member is gone."""

    @property
    def pending(self) -> int:
        """Return the newest generation that this process has heard of."""

    def meet(self) -> None:
        """Get to know the place of the others, as `target`."""

    def ready(self) -> Among | None:
        """Return among whom to make the next call, None to skip it. `current` has the state of all, unless skipped."""

    def attempt(self) -> AbstractContextManager[None]:
        """Do something with the other members in the block. Sets `broke`."""

    def recover(self) -> Among | None:
        """Go on after a broken attempt: as `ready`."""

    def opened(self, shards: int | None, updates: int, epochs: int) -> None:
        """Take note of work that begins: a section of updates, or without shards anything else that members share."""

    def committed(self, step: TrainStep, committed: Committed, shards: int) -> None:
        """Record an update that all members have."""

    def tested(self) -> None:
        """Record an evaluation, which is in `current.last_test`."""

    def loading(self, loader: ShardLoader) -> Loads:
        """Return what loads the batches of the next call."""

    def alive(self) -> None:
        """Report that this process computes."""


class LoopEngine(Protocol):
    """Declares what a run asks of what computes its updates. See `UpdateEngine`."""

    device: torch.device

    @property
    def trained(self) -> frozenset[int]:
        """Return the ids of the parameters that are trained."""

    def use(self, order: Order) -> None:
        """Take the samples of the next updates from this order."""

    def parts(self, step: TrainStep, block: range, loader: Loads, group: Group, *, again: int) -> Iterator[ShardPart]:
        """Yield the parts of an update that this member computes."""

    def begin(self, part: ShardPart) -> None:
        """Prepare for the forward pass of a part."""

    def backward(self, part: ShardPart, loss: Tensor, weight: float | None) -> None:
        """Compute the gradients of a loss of a part."""

    def end(self, part: ShardPart, loss: Any, correct: float | None, *, weight: float | None, kept: bool) -> None:
        """Take the gradients of a part."""

    def gather(self, group: Group, *, pending: int) -> Any:
        """Have the gradients of all members in `.grad`."""

    def second_look(self, gathered: Any, group: Group, *, again: int) -> Generator[Batch, tuple[Any, Any], None]:
        """Yield batches to compute once more."""

    def clip(self, parameters: Sequence[Tensor], most: float) -> None:
        """Scale the gradients of parameters so that their norm together is at most `most`."""

    def settle(self, gathered: Any) -> Committed:
        """Return what all members know of an update."""


class Loads(Protocol):
    """Declares what loads a batch."""

    def take(self, key: BatchKey) -> Batch:
        """Return the batch of a key."""


class Alone:
    """Makes all calls alone, without a job. Nothing is recorded."""

    def __init__(self, current: RunState, device: torch.device | str) -> None:
        self.current = current
        self.target: Place | None = None
        self.first = True
        self.broke = self.jumps = False
        self.pending = 0
        group = Group(None, 0, 1, device=torch.device(device), interface="", generation=0)
        self._among = Among(group, 0, 1)

    def meet(self) -> None:
        """Do nothing: there are no others."""

    def ready(self) -> Among:
        """Return that this process is alone."""
        return self._among

    def attempt(self) -> AbstractContextManager[None]:
        """Do something in the block."""
        return contextlib.nullcontext()

    def recover(self) -> Among:
        """Raise: nothing breaks."""
        raise AssertionError("without others nothing breaks")

    def opened(self, shards: int | None, updates: int, epochs: int) -> None:
        """Do nothing."""

    def committed(self, step: TrainStep, committed: Committed, shards: int) -> None:
        """Take note of the losses."""
        self.current.epoch = self.current.epoch.add(committed.stats)

    def tested(self) -> None:
        """Do nothing."""

    def loading(self, loader: ShardLoader) -> Loads:
        """Return the loader."""
        return loader

    def alive(self) -> None:
        """Do nothing."""
