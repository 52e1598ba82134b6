"""A script with a loop of its own: two optimizers, a schedule, an average of weights, a counter, an evaluation.

Run by tests as the main script of a job, and alone. It waits at the beginning of an epoch while the file `hold-<epoch>`
is in the folder given as its argument, and writes what it sees there.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import edt_sdk.elastic as edt

FOLDER = Path(sys.argv[1])
EPOCHS, SAMPLES = 6, 53


class Counter:
    """Counts steps, as a schedule of the user's own might."""

    def __init__(self):
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.3)
        )
        self.head = torch.nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def note(*what):
    with (FOLDER / "notes").open("a") as notes:
        notes.write(json.dumps([os.getpid(), *what]) + "\n")


def hash_of(*modules):
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in module.state_dict().items():
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


torch.set_num_threads(1)
torch.manual_seed(11)
net = Net()
heads = torch.optim.SGD(net.head.parameters(), lr=0.05, momentum=0.9)
body = torch.optim.AdamW(net.body.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(body, 40)
average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
counter = Counter()
numbers = torch.Generator().manual_seed(1)
train = torch.utils.data.TensorDataset(
    torch.randn(SAMPLES, 1, 6, 6, generator=numbers), torch.randint(0, 3, (SAMPLES,), generator=numbers)
)
test = torch.utils.data.TensorDataset(
    torch.randn(43, 1, 6, 6, generator=numbers), torch.randint(0, 3, (43,), generator=numbers)
)
mine = {"best": float("inf")}
run = edt.elastic(
    model=net, heads=heads, body=body, schedule=schedule, average=average, counter=counter, mine=mine, seed=3
)


def validate(batch):
    x, y = batch
    outputs = net(x)
    return {"loss": F.cross_entropy(outputs, y), "accuracy": (outputs.argmax(1) == y).sum().item() / len(y)}


begun = 0  # does not travel: a worker that joins says so
for epoch in run.epochs(EPOCHS):
    begun = begun + 1
    if run.first:
        note("begin", epoch, counter.steps)
    deadline = time.monotonic() + 180
    while (FOLDER / f"hold-{epoch}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for update in run.updates(train, batch=12, shards=4):
        for x, y in update:
            update.backward(F.cross_entropy(net(x), y))
        update.step(heads, body, clip=1.0)
        schedule.step()
        average.update_parameters(net)
        counter.steps += 1
        if run.first:
            note("update", update.number, update.loss)
    score = run.evaluate(test, validate, batch=5)
    seen = run.evaluate(train, validate, batch=9, name="train")
    run.evaluate(test, validate, batch=7)
    mine["best"] = min(mine["best"], score["loss"])
    better = run.save_best(score["loss"], average.module, lower=True)
    if run.first:
        note("score", epoch, score, seen, better, mine, run.loss, schedule.get_last_lr())
if run.first:
    note("end", hash_of(net, average), counter.steps, torch.rand(1).item())
