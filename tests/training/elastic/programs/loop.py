"""What the programs share: data, and the batches of a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import edt_sdk.elastic as edt
from edt_sdk.elastic.batches import SampledOrder
from edt_sdk.training.sampling.order import Order

SEED, BATCH, SHARDS, EPOCHS = 3, 12, 4, 3
SECOND = range(1 << 30, (1 << 30) + EPOCHS)  # the passes of a second loop over epochs
Program = Iterator[tuple[nn.Module, ...]]


def batches(
    data: Any,
    *,
    collate: Callable[[list[Any]], Any] = torch.utils.data.default_collate,
    passes: range = range(EPOCHS),
    batch: int = BATCH,
) -> Iterator[Any]:
    """The batches of a plain loop, in the order of the engine."""
    order = Order(len(data), (batch,), batch, SEED, passes.stop)
    if isinstance(data, edt.Stream):
        order = SampledOrder(data.sampler, len(data), (BATCH,), BATCH, SEED)
    for epoch in passes:
        for update in range(order.updates_per_epoch):
            yield collate([data[index] for index in order.shards(epoch, update)[0].tolist()])


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(*shape: int, below: int, seed: int = 2) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def updates(
    run: edt.ElasticRun, data: Any, *, epochs: int = EPOCHS, batch: int = BATCH, **options: Any
) -> Iterator[edt.Update]:
    for _ in run.epochs(epochs):
        yield from run.updates(data, batch=batch, shards=SHARDS, **options)


class Anneal:
    """A weight that grows with each update."""

    def __init__(self) -> None:
        self.weight = 0.0

    def step(self) -> None:
        self.weight = min(1.0, self.weight + 0.1)

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.weight = state["weight"]
