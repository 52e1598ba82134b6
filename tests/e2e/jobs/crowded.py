"""Trains for longer than any test lasts, and the slower the more workers it has: they stand in each other's way."""

import fcntl
import os
import sys
import time
from pathlib import Path

import torch
from fabric_model import FabricModel

ROOM = Path(sys.argv[1])


def crowd():
    """Whoever has ever come in and is still alive."""
    return sum(os.path.exists(f"/proc/{path.name}") for path in ROOM.iterdir() if path.name.isdecimal())


class Crowded(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        (ROOM / str(os.getpid())).touch()
        with open(ROOM / "door", "w") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            time.sleep(0.003 * crowd())
        return torch.full((4,), float(index)), index % 2


def datasets():
    return Crowded(), Crowded()


if __name__ == "__main__":
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    edt = FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer)
    edt.train(100_000, 2, 8, validation_freq=1_000_000, checkpoint_freq=0)
