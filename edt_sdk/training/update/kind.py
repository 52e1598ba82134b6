"""Find out which bits this machine computes: `python -m edt_sdk.training.update.kind` prints a hash of some gradients.

Machines with other processors, or another torch, round otherwise in places that no setting controls: vector units of
another width add in another order. Two machines with the same hash are of one kind, and a training may be on both. What
is computed is small and covers what models are made of: a convolution, products of matrices, normalizations, a softmax.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from edt_sdk.training.update import determinism

_ROUNDS = 3


def kind(device: torch.device) -> str:
    """Return the hash of what a device computes, as 16 hexadecimal digits."""
    torch.set_num_threads(1)
    determinism.configure("exact")
    # Drawn as numbers of one type and in one order, so that they are the same on every machine.
    numbers = torch.Generator().manual_seed(17)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 67), nn.LayerNorm(67)
    ).to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-1000, 1000, parameter.shape, generator=numbers).float() / 3000)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    digest = hashlib.sha256()
    for _ in range(_ROUNDS):
        inputs = (torch.randint(-1000, 1000, (19, 3, 16, 16), generator=numbers).float() / 700).to(device)
        targets = torch.randint(0, 67, (19,), generator=numbers).to(device)
        optimizer.zero_grad()
        loss: Tensor = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        for parameter in model.parameters():
            assert parameter.grad is not None
            digest.update(parameter.grad.cpu().numpy().tobytes())
        optimizer.step()
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    print(kind(torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")))
