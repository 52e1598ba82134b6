"""A script with a sharded model: blocks, a tied head, a schedule, an evaluation, the best weights.

Run by tests as the main script of a job, and alone. It waits at the beginning of an epoch while the file `hold-<epoch>`
is in the folder given as its argument, and writes what it sees there.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import edt_sdk.elastic as edt

FOLDER = Path(sys.argv[1])
WORDS, WIDTH = 31, 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, WORDS)
        self.head.weight = self.words.weight

    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def note(*what):
    with (FOLDER / "notes").open("a") as notes:
        notes.write(json.dumps([os.getpid(), *what]) + "\n")


torch.set_num_threads(1)
torch.manual_seed(11)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
numbers = torch.Generator().manual_seed(1)
train, test = (torch.randint(0, WORDS, (count, 6), generator=numbers) for count in (53, 19))
run = edt.elastic(model=net, optimizer=optimizer, schedule=schedule, parallel=edt.Sharded(Block), seed=3, mode="fast")


def loss_of(x):
    return F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


for epoch in run.epochs(5):
    if run.first:
        note("begin", epoch, run.update)
    deadline = time.monotonic() + 180
    while (FOLDER / f"hold-{epoch}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    # The last update of an epoch has two parts, and 53 samples leave one of five.
    for update in run.updates(train, batch=12, shards=4):
        for x in update:
            update.backward(loss_of(x), weight=5 * len(x))  # the mean is over words
        update.step(clip=0.3)
        schedule.step()
        if run.first:
            note("update", update.number, update.loss)
    score = run.evaluate(test, lambda x: {"loss": loss_of(x)}, batch=5)
    better = run.save_best(score["loss"], lower=True)
    if run.first:
        note("score", epoch, score["loss"], better)
assert run.once(lambda: float(loss_of(test))) > 0
