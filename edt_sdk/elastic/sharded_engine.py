"""Compute the updates of a sharded model by the collectives of FSDP2, as `UpdateEngine` does for other models.

A forward pass is something that all members do together. So each of them computes equally many parts: a member that has
fewer computes one more often, which then weighs nothing. FSDP2 sums the gradients over the members within each backward
pass. A step of the optimizers is local: norms of gradients, of which each member has a part, are summed before it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from edt_sdk.elastic.divided_model import DividedModel, local
from edt_sdk.schemas.errors import Conflict
from edt_sdk.training.exchange.blocks import blocks
from edt_sdk.training.exchange.group import Group
from edt_sdk.training.exchange.header import Header, Report, ShardStats, Summary
from edt_sdk.training.exchange.header import exchange as exchange_records
from edt_sdk.training.exchange.layout import Flat
from edt_sdk.training.sampling.order import Order, TrainStep
from edt_sdk.training.sampling.seeds import derive, set_states
from edt_sdk.training.update.gradients import Contribution
from edt_sdk.training.update.loader import Batch
from edt_sdk.training.update.not_a_number import LossGuard
from edt_sdk.training.update.shard import ShardOutcome
from edt_sdk.training.update.update import KEPT, WEIGHT, Committed, Loader, ShardPart, total_weight
from edt_sdk.training.update.user_functions import number_or_none, plain

_NOTHING = np.zeros(0, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class SummedUpdate:
    """Keeps an update between `gather` and `settle`."""

    summary: Summary


class ShardedEngine:
    """Computes the updates of a sharded model for a loop of one's own. The methods are those of `UpdateEngine`."""

    inexact = ""

    def __init__(
        self, divided: DividedModel, *, seed: int, device: torch.device | str, nan_loss: str, worker: int = 0
    ) -> None:
        self.device = torch.device(device)
        self._divided = divided
        self._seed = seed
        self._worker = worker
        self._guard = LossGuard(stop=nan_loss == "stop")
        self._header = Header((WEIGHT, KEPT))
        self._counts: tuple[int, ...] = ()
        self._world = 1
        self._factor: float | None = None  # of the losses of the running part
        self._parts: list[ShardPart] = []
        self._step: TrainStep | None = None
        self._versions: list[int] = []
        self._norms: dict[int, float] = {}  # squares of the norms of gradients by the id of their parameter
        divided.model.train()

    @property
    def trained(self) -> frozenset[int]:
        """Return the ids of the parameters that are trained: all."""
        return frozenset(map(id, self._divided.model.parameters()))

    def use(self, order: Order) -> None:
        """Take the samples of the next updates from this order."""
        self._order = order

    def parts(
        self, step: TrainStep, block: range, loader: Loader, group: Group, *, again: int = 0
    ) -> Iterator[ShardPart]:
        """Yield the parts of this member, and the last one again until it has as many as the others."""
        self._step, self._parts, self._world = step, [], group.world
        self._counts = self._order.samples_of(step.epoch, step.update_in_epoch)
        self._versions = [buffer._version for buffer in self._divided.model.buffers()]
        for parameter in self._divided.model.parameters():
            parameter.grad = None
        shares = [[shard for shard in share if self._counts[shard]] for share in blocks(len(self._counts), group.world)]
        own = shares[group.rank]
        batch: Batch | None = None
        for number in range(max(len(share) for share in shares)):
            # Rank 0 always has a part, and a member without any computes that one.
            shard = own[min(number, len(own) - 1)] if own else shares[0][0]
            if batch is None or number < len(own):
                (key,) = self._order.keys(step, range(shard, shard + 1))
                batch = loader.take(key)
            seed = derive(self._seed, "train-shard", step.update, shard, *([again] if again else []))
            weight = self._counts[shard] if number < len(own) else 0
            part = ShardPart(shard, batch, seed, Contribution(Flat((), ()), weight))
            yield part
            if weight:
                self._parts.append(part)

    def begin(self, part: ShardPart) -> None:
        """Prepare for the forward pass of a part."""
        self._factor = None
        set_states(part.seed)

    def backward(self, part: ShardPart, loss: Tensor, weight: float | None) -> None:
        """Compute the gradients of a loss of a part, in which its weight is already."""
        factor = part.contribution.weight
        if weight is not None and factor:
            factor = weight
        if self._factor not in (None, factor):
            raise Conflict(
                "The losses of a part of a sharded model have several weights.",
                hint="Give weight= to each update.backward(), or to none.",
            )
        self._factor = factor
        # FSDP2 divides by the number of members.
        (loss * (factor * self._world / sum(self._counts))).backward()  # type: ignore[no-untyped-call]

    def end(self, part: ShardPart, loss: object, correct: float | None, *, weight: float | None, kept: bool) -> None:
        """Take note of a part that was computed."""
        own = part.contribution.weight if self._factor is None else self._factor
        indices = part.batch.indices
        part.outcome = ShardOutcome(part.shard, len(indices), indices, loss, correct, (own, float(kept)))

    def gather(self, group: Group, *, pending: int) -> SummedUpdate:
        """Exchange what all members need to know. Then `.grad` holds this member's part of the gradient of the mean."""
        assert self._step is not None, "an update is computed before"
        report = Report(
            pending, tuple(self._stats()), _NOTHING, _NOTHING, _NOTHING, b"", worker=self._worker, pid=os.getpid()
        )
        summary = exchange_records(group, self._header, report, self._counts)
        self._guard.check(self._step, summary.shards, speaker=group.rank == 0)
        factor = sum(self._counts) / total_weight(summary.shards)
        parameters = list(self._divided.model.parameters())
        gradients = _gradients(parameters)
        squares = torch.zeros(len(parameters) + 1, dtype=torch.float64, device=self.device)
        if gradients:
            if factor != 1:
                torch._foreach_mul_(gradients, factor)
            there = [number for number, parameter in enumerate(parameters) if parameter.grad is not None]
            squares[there] = torch.stack(torch._foreach_norm(gradients)).to(torch.float64) ** 2
        squares[-1] = group.rank == 0 and self._divided.is_time()
        group.all_reduce(squares).wait()
        *found, due = squares.tolist()
        self._norms = dict(zip(map(id, parameters), found, strict=True))
        self._divided.due = due > 0
        self._average_buffers(group)
        return SummedUpdate(summary)

    def clip(self, parameters: Sequence[Tensor], most: float) -> None:
        """Scale the gradients of parameters so that their norm together is at most `most`."""
        norm = sum(self._norms[id(parameter)] for parameter in parameters) ** 0.5
        if not norm + 1e-6 <= most:
            torch._foreach_mul_(_gradients(parameters), most / (norm + 1e-6))

    def second_look(
        self, gathered: SummedUpdate, group: Group, *, again: int
    ) -> Generator[Batch, tuple[object, object], None]:
        """Yield nothing: a sharded training is not exact."""
        yield from ()

    def settle(self, gathered: SummedUpdate) -> Committed:
        """Return what all members know."""
        return Committed(
            tuple(replace(shard, metrics={}) for shard in gathered.summary.shards), gathered.summary.pending
        )

    def meet(self, group: Group) -> None:
        """Do nothing: members share no memory."""

    def expect(self, rank: int, world: int) -> None:
        """Do nothing: no memory is known to be needed."""

    def space(self) -> list[Tensor]:
        """Return no memory."""
        return []

    def _stats(self) -> Iterator[ShardStats]:
        for part in self._parts:
            found = part.outcome
            assert found is not None, "the caller computes each part"
            yield ShardStats(
                shard=part.shard,
                samples=found.samples,
                loss=plain(found.loss),
                correct=number_or_none(found.correct),
                metrics=dict(zip((WEIGHT, KEPT), found.metrics, strict=True)),
                indices=found.indices,
                worker=self._worker,
                pid=os.getpid(),
            )

    @torch.no_grad()
    def _average_buffers(self, group: Group) -> None:
        """Average the buffers that this update has changed, such as those of BatchNorm. Others are those of rank 0."""
        # The same ones in all members, which run the same code.
        for buffer, version in zip(self._divided.model.buffers(), self._versions, strict=True):
            if buffer._version == version or group.world == 1:
                continue
            if buffer.is_floating_point():
                mean = buffer.contiguous()
                group.all_reduce(mean).wait()
                buffer.copy_(mean / group.world)
            else:
                first = buffer.contiguous()
                group.broadcast(first, 0).wait()
                buffer.copy_(first)


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
