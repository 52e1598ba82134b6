"""A script whose two networks train in turn, with samples by weight, a queue of features, and data made by the model.

As `own_loop.py`, it waits while the file `hold-<epoch>` is there, and writes what it sees.
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
torch.set_num_threads(1)
torch.manual_seed(5)
generator = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 6))
critic = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
critic.register_buffer("queue", torch.zeros(20, 6))
opt_g = torch.optim.Adam(generator.parameters(), lr=0.01)
opt_c = torch.optim.Adam(critic.parameters(), lr=0.01)
numbers = torch.Generator().manual_seed(1)
train = torch.utils.data.TensorDataset(torch.randn(40, 6, generator=numbers), torch.rand(40, generator=numbers))
run = edt.elastic(generator=generator, critic=critic, opt_g=opt_g, opt_c=opt_c, seed=3)


def note(*what):
    with (FOLDER / "notes").open("a") as notes:
        notes.write(json.dumps([os.getpid(), *what]) + "\n")


def judge(x, real):
    return F.binary_cross_entropy_with_logits(critic(x), torch.full((len(x), 1), float(real)))


for epoch in run.epochs(4):
    seeds = run.once(lambda: torch.randn(3, 4))  # what one worker draws for all
    deadline = time.monotonic() + 180
    if run.first:
        note("begin", epoch)
    while (FOLDER / f"hold-{epoch}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for update in run.updates(train, batch=10, shards=3, sampler=train.tensors[1]):
        for x, kept in update:
            fake = generator(torch.randn(len(x), 4)).detach()
            update.backward(judge(x, True) + judge(fake, False), weight=kept.sum())
            update.keep("fake", fake)
        critic_loss = update.loss
        update.step(opt_c)
        critic.queue.copy_(torch.cat([update.kept("fake"), critic.queue])[:20])
        for x, _ in update:
            update.backward(judge(generator(torch.randn(len(x), 4)), True))
            update.backward(0.1 * (generator(seeds).mean(0) - critic.queue.mean(0)).square().sum())
        update.step(opt_g, clip=0.5)
        if run.first:
            note("update", update.number, critic_loss, update.loss)
    for update in run.updates(train, batch=20, shards=2, steps=3):
        for x, _ in update:
            update.backward(judge(x, True))
        update.step(opt_c)
    mean = run.evaluate(train, lambda batch: (critic(batch[0]).sum(), len(batch[0])), batch=7)
    if run.first:
        note("mean", epoch, mean, seeds.sum().item())
if run.first:
    digest = hashlib.sha256()
    for tensor in (*generator.state_dict().values(), *critic.state_dict().values()):
        digest.update(tensor.numpy().tobytes())
    note("end", digest.hexdigest())
