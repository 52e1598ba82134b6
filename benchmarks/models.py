"""The models of the throughput benchmark: small enough for one core, different in what costs them time.

`convnet` has batch norm and many small parameters, `transformer` attention and embeddings, `mlp` a few million weights
and little to compute with each: the exchange is what costs it. Random data, made once, held in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset


@dataclass(frozen=True)
class Task:
    """A model, its data, and how many samples one shard takes."""

    model: Callable[[], nn.Module]
    dataset: Callable[[int], TensorDataset]
    micro_batch: int


class Residual(nn.Module):
    """Two convolutions with batch norm, and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.around(x))


def convnet() -> nn.Module:
    """Residual blocks on 3×32×32 images; 0.3 M parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        Residual(64, 96, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, 10),
    )


class Transformer(nn.Module):
    """Two encoder layers over 64 tokens; 0.5 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        self.position = nn.Parameter(torch.zeros(64, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens) + self.position).mean(1))


def mlp() -> nn.Module:
    """Three hidden layers of 1,024; 3.2 M parameters."""
    sizes = (1024, 1024, 1024, 1024)
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def _images(samples: int) -> TensorDataset:
    return TensorDataset(torch.randn(samples, 3, 32, 32), torch.randint(0, 10, (samples,)))


def _sentences(samples: int) -> TensorDataset:
    return TensorDataset(torch.randint(0, 1000, (samples, 64)), torch.randint(0, 10, (samples,)))


def _vectors(samples: int) -> TensorDataset:
    return TensorDataset(torch.randn(samples, 1024), torch.randint(0, 10, (samples,)))


TASKS = {
    "convnet": Task(convnet, _images, 32),
    "transformer": Task(Transformer, _sentences, 16),
    "mlp": Task(mlp, _vectors, 64),
}
