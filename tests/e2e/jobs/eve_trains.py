"""Trains, and lets eve.py reach for other things from the driver and from each worker: `eve_trains.py <folder>`.

The folder has the targets of each machine, and the number of the epoch that may begin.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
from callbacks import Callback
from fabric_model import FabricModel

folder = Path(sys.argv[1])
EPOCHS = 200


def reach(role):
    name = socket.gethostname()
    targets = folder / f"{name}.json"
    while not targets.exists():
        time.sleep(0.02)
    # By its name: the workers have this module by value, and their code in a folder of their own machine.
    subprocess.run([sys.executable, "eve.py", str(targets), f"got-{role}-{name}.json"], check=True)


class Noise(torch.utils.data.Dataset):
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(24, 4, generator=generator)
        self.y = torch.randint(0, 2, (24,), generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def datasets():
    reach("worker")
    return Noise(1), Noise(2)


class Gate(Callback):
    def on_epoch_begin(self, epoch):
        while epoch > int((folder / "epoch").read_text() or 0):
            time.sleep(0.02)


if __name__ == "__main__":
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    edt = FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer, user_callback=[Gate()])
    edt.train(EPOCHS, 2, 8, validation_freq=1000, checkpoint_freq=0)
    reach("driver")
