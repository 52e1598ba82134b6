"""Models with everything that a state may hold, optimizers, and the bits of both, for tests of what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from edt_sdk.training.state import state
from edt_sdk.training.state.state import State


class Net(nn.Module):
    """Channels-last, BatchNorm, complex and half-precision parameters, an expanded buffer, tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(48, 48)
        self.tied = nn.Linear(48, 48, bias=False)
        self.tied.weight = self.head.weight
        self.narrow = nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
        self.turn = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
        self.scalar = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("wide", torch.ones(1).expand(5))
        self.register_buffer("none", torch.empty(0))
        with torch.no_grad():
            self.conv.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        y = self.tied(self.head(self.norm(self.conv(x)).flatten(1)))
        return y * self.scalar + self.narrow.float().sum() + (self.turn * (1 + 2j)).sum().abs()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
}


def trained(optimizer: str = "momentum", steps: int = 3) -> tuple[Net, torch.optim.Optimizer]:
    """A model after some steps; another number of steps gives other bits."""
    torch.manual_seed(1)
    model = Net()
    own = OPTIMIZERS[optimizer](model.parameters())
    for step in range(steps):
        torch.manual_seed(step)
        own.zero_grad()
        model(torch.randn(5, 1, 6, 6)).square().mean().backward()
        own.step()
    return model, own


def capture(model: nn.Module, optimizer: torch.optim.Optimizer, extra: object = None) -> Callable[[], State]:
    """What a keeper is given."""
    return lambda: state.capture(model, optimizer, extra)


def bits(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[object]:
    """Everything that must come back: equal exactly when every bit, type and memory format is."""
    found: list[object] = [(name, *_bits(t)) for name, t in (*model.named_parameters(), *model.named_buffers())]
    for group in optimizer.param_groups:
        found.append({key: value for key, value in group.items() if key != "params"})
        for parameter in group["params"]:
            for key, value in sorted(optimizer.state[parameter].items()):
                found.append((key, _bits(value) if isinstance(value, Tensor) else value))
    return found


def _bits(tensor: Tensor) -> tuple[object, ...]:
    # The strides of dimensions of one element say nothing, and an expanded tensor is its values.
    strides = [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1 and s > 0]
    return tensor.dtype, tensor.shape, strides, bytes(tensor.detach().contiguous().flatten().view(torch.uint8).tolist())
