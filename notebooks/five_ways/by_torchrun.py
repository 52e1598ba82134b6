"""A script for torchrun, unchanged: it starts again from its checkpoint when the number of workers changes."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from problem import BATCH, EPOCHS, datasets, network, optimizer_of
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
net = network()
optimizer = optimizer_of(net)
saved = Path(os.environ["RESULT_DIR"]) / "checkpoint.pt"
start = 0
if saved.exists():
    checkpoint = torch.load(saved)
    net.load_state_dict(checkpoint["net"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    start = checkpoint["epochs"]
parallel = DistributedDataParallel(net)
train, _ = datasets()
sampler = DistributedSampler(train, seed=0)
for epoch in range(start, EPOCHS):
    sampler.set_epoch(epoch)
    for images, labels in DataLoader(train, BATCH // world, sampler=sampler):
        optimizer.zero_grad()
        F.cross_entropy(parallel(images), labels).backward()
        optimizer.step()
    if rank == 0:
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1}
        torch.save(state, saved.with_suffix(".new"))
        saved.with_suffix(".new").replace(saved)
dist.destroy_process_group()
