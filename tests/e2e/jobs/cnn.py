"""Convolution, BatchNorm and dropout on data whose length divides nothing; gates hold it where a test wants it."""

import argparse
import gc
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--samples", type=int, default=203)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--shards", type=int, default=8)
parser.add_argument("--loaders", type=int, default=0)
parser.add_argument("--checkpoints", type=int, default=0)
parser.add_argument("--gates", default="")
parser.add_argument("--pause", type=float, default=0.002)  # seconds a sample takes while there are gates
options = parser.parse_args()


class Augmented(torch.utils.data.Dataset):
    """Images that differ each time they are looked at, by all three random generators."""

    def __init__(self, samples, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(samples, 1, 8, 8, generator=generator)
        self.y = torch.randint(0, 5, (samples,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if options.gates:
            time.sleep(options.pause)
        noise = torch.randn(1, 8, 8) * 0.05 + random.random() * 0.01 + float(np.random.rand()) * 0.01
        return self.x[index] + noise, self.y[index]


def datasets():
    if options.gates:
        with open(Path(options.gates) / "opened", "a") as opened:
            opened.write(f"{os.getpid()}\n")
    return Augmented(options.samples, 1), Augmented(37, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Dropout2d(0.2),
            nn.Conv2d(6, 8, 3),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 5))

    def forward(self, x):
        return self.head(self.body(x))


from callbacks import Callback  # noqa: E402


class Gate(Callback):
    """Rank 0 waits at the begin of an epoch while there is a file of that number, and says that it is there.

    With a file `told-<epoch>` it then waits until it is told to leave.
    """

    def on_epoch_begin(self, epoch):
        (Path(options.gates) / f"at-{epoch}").touch()
        gate = Path(options.gates) / f"hold-{epoch}"
        while gate.exists():
            time.sleep(0.02)
        if (Path(options.gates) / f"told-{epoch}").exists():
            from edt_sdk.training.member.link import Link  # which the version before has elsewhere

            link = next(thing for thing in gc.get_objects() if isinstance(thing, Link))
            while (generation := link.generation(link.pending)) is None or generation.members:
                time.sleep(0.02)


if __name__ == "__main__":
    torch.manual_seed(7)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    edt = FabricModel(
        model,
        datasets,
        torch.nn.functional.cross_entropy,
        optimizer,
        driver_logger=EDTLoggerCallback(),
        user_callback=[Gate()] if options.gates else [],
    )
    edt.train(
        options.epochs,
        options.batch,
        options.shards,
        num_dataloader_threads=options.loaders,
        checkpoint_freq=options.checkpoints,
    )
    print("trained")
