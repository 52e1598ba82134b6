"""A script that goes twice through a million samples in 200 files, which lie in the folder given as its argument."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import edt_sdk.elastic as edt

FOLDER = Path(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(1)
net = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
data = edt.stream(FOLDER.glob("part-*.txt"), lambda line: torch.tensor([int(line) / 1e6]))
run = edt.elastic(model=net, opt=opt, seed=3)
for _ in run.epochs(2):
    for update in run.updates(data, batch=10_000, shards=4):
        for x in update:
            update.backward(F.mse_loss(net(x), 2 * x))
        update.step()
        (FOLDER / f"at-{os.getpid()}").write_text(str(update.number))
        deadline = time.monotonic() + 180
        while (FOLDER / f"hold-{update.number}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
