"""Train a model of 200 MB, sharded or whole, and note in a folder what memory each worker has after each update."""

import importlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor

import edt_sdk.elastic as edt

KIND, FOLDER, STEPS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
WIDTH, DEPTH, WORDS = 512, 16, 1000


def kilobytes(file: str, key: str) -> int:
    """Return a figure that the system keeps about this process."""
    lines = (line.split() for line in Path(f"/proc/self/{file}").read_text().splitlines())
    return next(int(words[1]) for words in lines if words[0] == key)


class Block(nn.Module):
    """A residual block of 12 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 6 * WIDTH), nn.Linear(6 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


class Net(nn.Module):
    """Blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.words(x)))


def local(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor that are in this process."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).nbytes


torch.manual_seed(0)
if KIND == "sharded":
    importlib.import_module("edt_sdk.elastic.sharded_engine")  # so that the baseline has it
before, resident = kilobytes("smaps_rollup", "Pss:"), kilobytes("status", "VmRSS:")
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
run = edt.elastic(
    model=net, optimizer=optimizer, mode="fast", parallel=edt.Sharded(Block) if KIND == "sharded" else None
)
data = torch.randint(0, WORDS, (64, 9), generator=torch.Generator().manual_seed(1))
for update in run.updates(data, batch=8, shards=4, steps=STEPS):
    for x in update:
        update.backward(F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()))
    update.step(clip=1.0)
    parameters = list(net.parameters())
    moments = [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
    gradients = [p.grad for p in parameters if p.grad is not None]
    line = {
        "update": update.number,
        "loss": update.loss,
        "trainable": sum(map(local, (*parameters, *gradients, *moments))),
        "pss": (kilobytes("smaps_rollup", "Pss:") - before) << 10,
        "peak": (kilobytes("status", "VmHWM:") - resident) << 10,
    }
    with (FOLDER / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
